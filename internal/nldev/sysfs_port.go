package nldev

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// GID is one valid entry of a port's GID table.
type GID struct {
	Port    uint32
	Index   uint32
	GID     [16]byte // network byte order
	Type    uint32   // IB_UVERBS_GID_TYPE_*
	Netdev  string   // empty if the entry has none (InfiniBand)
	IfIndex uint32   // of Netdev in this network namespace, otherwise 0
}

// PKeys returns the partition keys of a port in host byte order. The position in the slice is the
// P_Key index. Unused entries are 0.
func PKeys(dev string, port uint32) ([]uint16, error) { return kernel.sys.PKeys(dev, port) }

// GIDTable returns the valid entries of a port's GID table from sysfs. The ioctl QUERY_GID_TABLE
// is better if the kernel has it (5.10).
func GIDTable(dev string, port uint32) ([]GID, error) { return kernel.sys.GIDTable(dev, port) }

// Netdev returns the network device of a port, or fs.ErrNotExist if it has none (InfiniBand).
func Netdev(dev string, port uint32) (string, error) { return kernel.sys.Netdev(dev, port) }

// port returns the directory of a port.
func (s Sysfs) port(dev string, port uint32) (Sysfs, error) {
	if !validName(dev) {
		return s, fmt.Errorf("sysfs: %q is not a device name", dev)
	}
	return Sysfs{s.path("class", "infiniband", dev, "ports", strconv.FormatUint(uint64(port), 10))}, nil
}

// table returns the numeric names in a directory, in ascending order.
func (s Sysfs) table(elem ...string) ([]uint32, error) {
	list, err := os.ReadDir(s.path(elem...))
	if err != nil {
		return nil, err
	}
	var out []uint32
	for _, e := range list {
		if n, err := strconv.ParseUint(e.Name(), 10, 32); err == nil {
			out = append(out, uint32(n))
		}
	}
	slices.Sort(out)
	return out, nil
}

// entry reads one file of a table.
func (s Sysfs) entry(index uint32, table ...string) (string, error) {
	return s.read(append(table, strconv.FormatUint(uint64(index), 10))...)
}

// PKeys is the function PKeys for this root.
func (s Sysfs) PKeys(dev string, port uint32) ([]uint16, error) {
	dir, err := s.port(dev, port)
	if err != nil {
		return nil, err
	}
	list, err := dir.table("pkeys")
	if err != nil {
		return nil, err
	}
	out := make([]uint16, 0, len(list))
	for i, index := range list {
		if uint32(i) != index {
			return nil, fmt.Errorf("sysfs: %s port %d: no P_Key %d", dev, port, i)
		}
		text, err := dir.entry(index, "pkeys")
		if err != nil {
			return nil, err
		}
		v, err := strconv.ParseUint(text, 0, 16) // "0xffff"
		if err != nil {
			return nil, fmt.Errorf("sysfs: %s port %d P_Key %d: %w", dev, port, i, err)
		}
		out = append(out, uint16(v))
	}
	return out, nil
}

// GIDTable is the function GIDTable for this root.
func (s Sysfs) GIDTable(dev string, port uint32) ([]GID, error) {
	dir, err := s.port(dev, port)
	if err != nil {
		return nil, err
	}
	list, err := dir.table("gids")
	if err != nil {
		return nil, err
	}
	layer, err := dir.read("link_layer")
	if err != nil {
		return nil, err
	}
	var out []GID
	for _, index := range list {
		g := GID{Port: port, Index: index}
		text, err := dir.entry(index, "gids")
		if err != nil {
			return nil, err
		}
		if g.GID, err = parseGID(text); err != nil {
			return nil, fmt.Errorf("sysfs: %s port %d GID %d: %w", dev, port, index, err)
		}
		if g.GID == [16]byte{} {
			continue
		}
		if err := s.gidAttrs(&g, dir, layer); err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	return out, nil
}

// gidAttrs adds the type and the network device. If an entry lacks an attribute, reading it fails
// with EINVAL.
func (s Sysfs) gidAttrs(g *GID, port Sysfs, layer string) error {
	typ, err := port.entry(g.Index, "gid_attrs", "types")
	if err != nil && !absent(err) {
		return err
	}
	switch {
	case typ == "RoCE v2":
		g.Type = uapi.IB_UVERBS_GID_TYPE_ROCE_V2
	case typ == "IB/RoCE v1" && layer == "Ethernet":
		g.Type = uapi.IB_UVERBS_GID_TYPE_ROCE_V1
	default:
		g.Type = uapi.IB_UVERBS_GID_TYPE_IB
	}
	g.Netdev, err = port.entry(g.Index, "gid_attrs", "ndevs")
	if err != nil && !absent(err) {
		return err
	}
	if validName(g.Netdev) {
		if text, err := s.read("class", "net", g.Netdev, "ifindex"); err == nil {
			n, _ := strconv.ParseUint(text, 10, 32) // 0 in another namespace
			g.IfIndex = uint32(n)
		}
	}
	return nil
}

func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.EINVAL)
}

// Netdev is the function Netdev for this root. It returns the network device of the first GID
// entry that has one, or else rxe's parent, or else the only network device of the same bus
// device.
func (s Sysfs) Netdev(dev string, port uint32) (string, error) {
	dir, err := s.port(dev, port)
	if err != nil {
		return "", err
	}
	list, err := dir.table("gid_attrs", "ndevs")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, index := range list {
		if nd, err := dir.entry(index, "gid_attrs", "ndevs"); err == nil && validName(nd) {
			return nd, nil
		}
	}
	if nd, err := s.read("class", "infiniband", dev, "parent"); err == nil && validName(nd) {
		return nd, nil
	}
	if nets, err := os.ReadDir(s.path("class", "infiniband", dev, "device", "net")); err == nil && len(nets) == 1 {
		return nets[0].Name(), nil
	}
	return "", fmt.Errorf("sysfs: netdev of %s port %d: %w", dev, port, fs.ErrNotExist)
}

// parseGID parses eight groups of four hex digits.
func parseGID(s string) (g [16]byte, err error) {
	b, err := hex.DecodeString(strings.ReplaceAll(s, ":", ""))
	if err != nil || len(b) != len(g) || len(s) != 39 {
		return g, fmt.Errorf("%q is no GID", s)
	}
	return [16]byte(b), nil
}
