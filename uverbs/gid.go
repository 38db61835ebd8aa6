package uverbs

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A GID is a port's 128-bit address, in network order. On RoCE v2 it is an IP
// address, IPv4 as ::ffff:a.b.c.d.
type GID [16]byte

// Addr is the GID as an IP address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GIDFromAddr is the GID that stands for an IP address on RoCE.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// IsZero tells whether the GID is all zero: none.
func (g GID) IsZero() bool { return g == GID{} }

// MarshalText writes 32 hexadecimal digits. It cannot fail.
func (g GID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, g[:]), nil }

// UnmarshalText reads 32 hexadecimal digits. [ErrInvalid] for anything else.
func (g *GID) UnmarshalText(text []byte) error {
	var v GID
	if len(text) != hex.EncodedLen(len(v)) {
		return invalid("parse GID", "", fmt.Sprintf("a GID has 32 hexadecimal digits, got %q", text))
	}
	if _, err := hex.Decode(v[:], text); err != nil {
		return invalid("parse GID", "", fmt.Sprintf("a GID has 32 hexadecimal digits, got %q", text))
	}
	*g = v
	return nil
}

// GIDType says which protocol a GID is for: enum ib_uverbs_gid_type.
type GIDType uint8

// The types of GID.
const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return "GID type " + itoa(uint64(t))
}

// A GIDEntry is one line of a port's GID table.
type GIDEntry struct {
	GID     GID
	Port    int
	Index   int // in the port's table: what AHAttr.SGIDIndex wants
	Type    GIDType
	IfIndex int    // of the network interface, 0 where there is none
	Netdev  string // its name, "" where there is none in this namespace
}

const (
	gidEntrySize = 32
	// maxGIDEntries is what fits the size of an attribute, 16 bits.
	maxGIDEntries = 0xffff / gidEntrySize
)

// GIDs returns the entries of a port's GID table that are in use, in order of
// their index. [ErrInvalid] for a port that there is not.
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	if err := c.checkPort("read GIDs", port); err != nil {
		return nil, err
	}
	all, err := c.gidTable()
	if err != nil {
		return nil, err
	}
	var mine []GIDEntry
	for _, e := range all {
		if e.Port == port {
			mine = append(mine, e)
		}
	}
	return mine, nil
}

// gidTable asks for the entries of all ports. The kernel refuses a buffer that
// is too small for those in use, so it gets room for as many as there can be.
func (c *Context) gidTable() ([]GIDEntry, error) {
	room := 0
	for port := 1; port <= c.device.Ports; port++ {
		a, err := c.QueryPort(port)
		if err != nil {
			return nil, err
		}
		room += a.GIDTableLen
	}
	if room == 0 {
		return nil, nil
	}
	buf := make([]byte, min(room, maxGIDEntries)*gidEntrySize)
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_TABLE)
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, gidEntrySize)
	cmd.OutRef(uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, buf)
	n := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES)
	if err := c.dev.Do(cmd); err != nil {
		return nil, c.wrap("read GIDs", c.name, err, "")
	}
	entries := ioctl.SliceOf[uapi.IbUverbsGidEntry](buf)
	entries = entries[:min(*n, uint64(len(entries)))]
	all := make([]GIDEntry, 0, len(entries))
	for i := range entries {
		all = append(all, gidEntry(&entries[i]))
	}
	return all, nil
}

func gidEntry(e *uapi.IbUverbsGidEntry) GIDEntry {
	g := GIDEntry{GID: e.Gid, Port: int(e.PortNum), Index: int(e.GidIndex), Type: GIDType(e.GidType), IfIndex: int(e.NetdevIfindex)}
	if g.IfIndex != 0 {
		// An interface of another namespace has no name here.
		if i, err := net.InterfaceByIndex(g.IfIndex); err == nil {
			g.Netdev = i.Name
		}
	}
	return g
}
