package nldev

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// tree writes files below a new root. A value "-> x" creates a symbolic link.
func tree(t *testing.T, files map[string]string) Sysfs {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if len(content) > 3 && content[:3] == "-> " {
			err = os.Symlink(content[3:], path)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return Sysfs{Root: root}
}

// machine returns the sysfs of a machine with rxe and a ConnectX, as the kernel lays it out.
func machine(t *testing.T) Sysfs {
	return tree(t, map[string]string{
		"class/infiniband/rxe0/node_guid":                   "5054:00ff:fe12:3456\n",
		"class/infiniband/rxe0/node_type":                   "1: CA\n",
		"class/infiniband/rxe0/fw_ver":                      "\n",
		"class/infiniband/rxe0/parent":                      "eth0\n",
		"class/infiniband/rxe0/ports/1/link_layer":          "Ethernet\n",
		"class/infiniband/rxe0/ports/1/pkeys/0":             "0xffff\n",
		"class/infiniband/rxe0/ports/1/gids/0":              "fe80:0000:0000:0000:5054:00ff:fe12:3456\n",
		"class/infiniband/rxe0/ports/1/gids/1":              "0000:0000:0000:0000:0000:ffff:0a09:0001\n",
		"class/infiniband/rxe0/ports/1/gids/2":              "0000:0000:0000:0000:0000:0000:0000:0000\n",
		"class/infiniband/rxe0/ports/1/gids/10":             "0000:0000:0000:0000:0000:ffff:0a09:0002\n",
		"class/infiniband/rxe0/ports/1/gid_attrs/types/0":   "RoCE v2\n",
		"class/infiniband/rxe0/ports/1/gid_attrs/types/1":   "IB/RoCE v1\n",
		"class/infiniband/rxe0/ports/1/gid_attrs/types/10":  "RoCE v2\n",
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/0":   "eth0\n",
		"class/infiniband/rxe0/ports/1/gid_attrs/ndevs/1":   "eth0\n",
		"class/net/eth0/ifindex":                            "2\n",
		"class/infiniband_verbs/abi_version":                "6\n",
		"class/infiniband_verbs/uverbs0/ibdev":              "mlx5_0\n",
		"class/infiniband_verbs/uverbs0/dev":                "231:192\n",
		"class/infiniband_verbs/uverbs0/abi_version":        "1\n",
		"class/infiniband_verbs/uverbs1/ibdev":              "rxe0\n",
		"class/infiniband_verbs/uverbs1/dev":                "231:193\n",
		"class/infiniband_verbs/uverbs1/abi_version":        "2\n",
		"class/infiniband/mlx5_0/node_guid":                 "b859:9f03:0012:3456\n",
		"class/infiniband/mlx5_0/node_type":                 "1: CA\n",
		"class/infiniband/mlx5_0/fw_ver":                    "20.31.1014\n",
		"class/infiniband/mlx5_0/device/driver":             "-> ../../../bus/auxiliary/drivers/mlx5_ib.rdma",
		"class/infiniband/mlx5_0/ports/1/link_layer":        "InfiniBand\n",
		"class/infiniband/mlx5_0/ports/1/pkeys/0":           "0xffff\n",
		"class/infiniband/mlx5_0/ports/1/pkeys/1":           "0x8001\n",
		"class/infiniband/mlx5_0/ports/1/pkeys/2":           "0x0000\n",
		"class/infiniband/mlx5_0/ports/1/gids/0":            "fe80:0000:0000:0000:b859:9f03:0012:3456\n",
		"class/infiniband/mlx5_0/ports/1/gid_attrs/types/0": "IB/RoCE v1\n",
		"class/infiniband/mlx5_0/ports/2/link_layer":        "InfiniBand\n",
		"class/misc/rdma_cm/dev":                            "10:126\n",
		"class/misc/rdma_cm/abi_version":                    "4\n",
	})
}

var (
	machineRxe = Device{
		Index: NoIndex, Name: "rxe0", NodeGUID: 0x505400fffe123456, NodeType: 1, Ports: 1,
		Char: &CharDev{Name: "uverbs1", ABI: 2, Major: 231, Minor: 193, DriverID: uapi.RDMA_DRIVER_RXE},
	}
	machineMlx5 = Device{
		Index: NoIndex, Name: "mlx5_0", NodeGUID: 0xb8599f0300123456, NodeType: 1, Ports: 2, FWVersion: "20.31.1014",
		Char: &CharDev{Name: "uverbs0", ABI: 1, Major: 231, Minor: 192, DriverID: uapi.RDMA_DRIVER_MLX5},
	}
)

// TestFallback: sysfs is used if netlink is refused.
func TestFallback(t *testing.T) {
	s := machine(t)
	for _, errno := range []unix.Errno{unix.EPROTONOSUPPORT, unix.EPERM, unix.EAFNOSUPPORT, unix.ECONNREFUSED} {
		c := deaf(errno, s.Root)
		got, err := c.devices()
		if d := cmp.Diff([]Device{machineMlx5, machineRxe}, got); err != nil || d != "" {
			t.Errorf("%v: devices: %v\n%s", errno, err, d)
		}
		cd, err := c.clientCharDev("rdma_cm")
		if want := (CharDev{Name: "rdma_cm", ABI: 4, Major: 10, Minor: 126}); err != nil || cd != want {
			t.Errorf("%v: rdma_cm = %+v, %v", errno, cd, err)
		}
	}
	if _, err := deaf(unix.EMFILE, s.Root).devices(); !errors.Is(err, unix.EMFILE) {
		t.Errorf("too many descriptors is no reason for sysfs: %v", err)
	}
}

// TestOldKernel: netlink lists the devices, but has no GET_CHARDEV.
func TestOldKernel(t *testing.T) {
	c := fakeClient(t, func(r request) [][]byte {
		if r.op == uapi.RDMA_NLDEV_CMD_GET {
			return [][]byte{reply(r, unix.NLM_F_MULTI, deviceAttrs(4, "rxe0")), done(r)}
		}
		return [][]byte{ack(r, unix.EINVAL)}
	})
	c.sys = machine(t)
	got, err := c.devices()
	if d := cmp.Diff([]Device{wantDevice(4, "rxe0", machineRxe.Char)}, got); err != nil || d != "" {
		t.Errorf("devices: %v\n%s", err, d)
	}
}

func TestPorts(t *testing.T) {
	s := machine(t)
	keys, err := s.PKeys("mlx5_0", 1)
	if d := cmp.Diff([]uint16{0xffff, 0x8001, 0}, keys); err != nil || d != "" {
		t.Errorf("pkeys: %v\n%s", err, d)
	}
	v4 := func(last byte) [16]byte {
		return [16]byte{10: 0xff, 11: 0xff, 12: 10, 13: 9, 15: last}
	}
	gids, err := s.GIDTable("rxe0", 1)
	want := []GID{
		{Port: 1, Index: 0,
			GID:  [16]byte{0: 0xfe, 1: 0x80, 8: 0x50, 9: 0x54, 11: 0xff, 12: 0xfe, 13: 0x12, 14: 0x34, 15: 0x56},
			Type: uapi.IB_UVERBS_GID_TYPE_ROCE_V2, Netdev: "eth0", IfIndex: 2},
		{Port: 1, Index: 1, GID: v4(1), Type: uapi.IB_UVERBS_GID_TYPE_ROCE_V1, Netdev: "eth0", IfIndex: 2},
		{Port: 1, Index: 10, GID: v4(2), Type: uapi.IB_UVERBS_GID_TYPE_ROCE_V2},
	}
	if d := cmp.Diff(want, gids); err != nil || d != "" {
		t.Errorf("gids: %v\n%s", err, d)
	}
	gids, err = s.GIDTable("mlx5_0", 1)
	if err != nil || len(gids) != 1 || gids[0].Type != uapi.IB_UVERBS_GID_TYPE_IB {
		t.Errorf("InfiniBand gids %v, %v", gids, err)
	}
	if nd, err := s.Netdev("rxe0", 1); nd != "eth0" || err != nil {
		t.Errorf("netdev of rxe0: %q, %v", nd, err)
	}
	if nd, err := s.Netdev("mlx5_0", 1); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("netdev of mlx5_0: %q, %v", nd, err)
	}
}

// TestSysfsRefuses: wrong names and contents are errors.
func TestSysfsRefuses(t *testing.T) {
	s := machine(t)
	for _, dev := range []string{"", ".", "..", "../rxe0", "a/b", "none"} {
		if _, err := s.PKeys(dev, 1); err == nil {
			t.Errorf("pkeys of %q", dev)
		}
		if _, err := s.GIDTable(dev, 1); err == nil {
			t.Errorf("gids of %q", dev)
		}
		if _, err := s.Netdev(dev, 1); err == nil {
			t.Errorf("netdev of %q", dev)
		}
	}
	if _, err := s.ClientCharDev("../misc/rdma_cm"); err == nil {
		t.Error("client that is a path")
	}
	for file, content := range map[string]string{
		"class/infiniband/x/node_guid": "12:34\n",
		"class/infiniband/y/node_guid": "zzzz:9f03:0012:3456\n",
	} {
		if _, err := tree(t, map[string]string{file: content}).Devices(); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s = %q: %v", file, content, err)
		}
	}
	for file, content := range map[string]string{
		"class/misc/a/dev": "10\n",
		"class/misc/b/dev": "10:x\n",
	} {
		s := tree(t, map[string]string{file: content, filepath.Dir(file) + "/abi_version": "4\n"})
		if _, err := s.ClientCharDev(filepath.Base(filepath.Dir(file))); err == nil {
			t.Errorf("%s = %q was taken", file, content)
		}
	}
}

// TestUnplugged: a device that is removed while it is read is omitted.
func TestUnplugged(t *testing.T) {
	s := tree(t, map[string]string{"class/infiniband/rxe0/hca_type": "x\n"})
	if got, err := s.Devices(); err != nil || len(got) != 0 {
		t.Errorf("devices = %v, %v", got, err)
	}
}

func FuzzSysfsText(f *testing.F) {
	f.Add("5054:00ff:fe12:3456")
	f.Add("fe80:0000:0000:0000:5054:00ff:fe12:3456")
	f.Fuzz(func(t *testing.T, s string) {
		_, _ = parseGUID(s)
		_, _ = parseGID(s)
	})
}
