package foreign

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
)

// hardware is what C's provider libraries look for on PCI.
type hardware struct{ modalias, vendor, device string }

var (
	connectX = hardware{"pci:v000015B3d0000101Dsv000015B3sd00000016bc02sc00i00", "0x15b3", "0x101d"} // ConnectX-6 Dx
	efa      = hardware{"pci:v00001D0Fd0000EFA2sv00001D0Fsd0000EFA2bc02sc00i00", "0x1d0f", "0xefa2"}
	bnxt     = hardware{"pci:v000014E4d00001750sv000014E4sd00001750bc02sc00i00", "0x14e4", "0x1750"} // BCM57508
	irdma    = hardware{"pci:v00008086d00001592sv00008086sd00000002bc02sc00i00", "0x8086", "0x1592"} // E810-C for QSFP
)

// writeFiles writes the files of sysfs that the C libraries read.
func (s *Server) writeFiles() error {
	devices, err := s.machine.Devices()
	if err != nil {
		return err
	}
	files := map[string]string{
		"class/infiniband_verbs/abi_version": "6",
		"class/misc/rdma_cm/abi_version":     "4",
		"class/misc/rdma_cm/dev":             "10:58",
	}
	for _, d := range devices {
		if d.Name == s.device {
			describe(files, &d)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "sys/drivers"), 0o755); err != nil {
		return err
	}
	if err := s.writePrograms(); err != nil {
		return err
	}
	for name, text := range files {
		path := filepath.Join(s.dir, "sys", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// describe adds the files of a device.
func describe(files map[string]string, d *nldev.Device) {
	node := "class/infiniband_verbs/" + d.Char.Name + "/"
	files[node+"ibdev"] = d.Name
	files[node+"abi_version"] = fmt.Sprint(d.Char.ABI)
	files[node+"dev"] = fmt.Sprintf("%d:%d", d.Char.Major, d.Char.Minor)
	dir := "class/infiniband/" + d.Name + "/"
	g := d.NodeGUID
	guid := fmt.Sprintf("%04x:%04x:%04x:%04x", g>>48, g>>32&0xffff, g>>16&0xffff, g&0xffff)
	files[dir+"node_type"] = fmt.Sprintf("%d: CA", d.NodeType)
	h := connectX
	switch d.Char.DriverID {
	case uapi.RDMA_DRIVER_EFA:
		h = efa
		files[dir+"node_type"] = fmt.Sprintf("%d: unspecified", d.NodeType)
	case uapi.RDMA_DRIVER_BNXT_RE:
		h = bnxt
	case uapi.RDMA_DRIVER_IRDMA:
		h = irdma
	}
	files[dir+"node_guid"], files[dir+"sys_image_guid"] = guid, guid
	files[dir+"fw_ver"] = d.FWVersion
	files[dir+"device/modalias"] = h.modalias
	files[dir+"device/vendor"], files[dir+"device/device"] = h.vendor, h.device
	for port := uint32(1); port <= d.Ports; port++ {
		files[dir+fmt.Sprintf("ports/%d/pkeys/0", port)] = "0xffff"
	}
}

// Programs that rdma-core's tests run, which would describe this machine: rdma(8), and cat for files in /sys.
const (
	rdmaProgram = `#!/bin/sh
echo '[{"ifindex":1,"ifname":"%s","port":1,"state":"ACTIVE","physical_state":"LINK_UP"}]'
`
	catProgram = `#!/bin/sh
exec /bin/cat $(echo "$@" | sed "s,/sys/class,$SYSFS_PATH/class,g")
`
)

func (s *Server) writePrograms() error {
	dir := filepath.Join(s.dir, "bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, "rdma"), fmt.Appendf(nil, rdmaProgram, s.device), 0o755),
		os.WriteFile(filepath.Join(dir, "cat"), []byte(catProgram), 0o755))
}
