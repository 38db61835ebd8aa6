package uverbs

import (
	"encoding/hex"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A GID is a port's 128-bit address, in network order. On RoCE v2 it is an IP address; IPv4
// addresses have the form ::ffff:a.b.c.d.
type GID [16]byte

// Addr returns the GID as an IP address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GIDFromAddr returns the GID of an IP address on RoCE.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// subnet returns the subnet prefix, which InfiniBand uses to route between subnets.
func (g GID) subnet() [8]byte { return [8]byte(g[:8]) }

// IsZero reports whether all bytes of the GID are zero, which means that there is no GID.
func (g GID) IsZero() bool { return g == GID{} }

// MarshalText returns 32 hexadecimal digits. It cannot fail.
func (g GID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, g[:]), nil }

// UnmarshalText parses 32 hexadecimal digits. It returns [ErrInvalid] for any other text.
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

// A GIDType is the protocol that a GID is used with: enum ib_uverbs_gid_type.
type GIDType uint8

// The types of GIDs.
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

// A GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Port    int
	Index   int // in the port's table; the value for AHAttr.SGIDIndex
	Type    GIDType
	IfIndex int    // of the network interface; 0 if there is none
	Netdev  string // name of the interface; "" if it has none in this namespace
}

const (
	gidEntrySize = 32
	// maxGIDEntries is how many entries fit in an attribute, whose size has 16 bits.
	maxGIDEntries = 0xffff / gidEntrySize
)

// GIDs returns the entries of a port's GID table that are in use, ordered by index. It returns
// [ErrInvalid] if the device has no such port, or the kernel's error if the names of network
// interfaces cannot be read, such as EMFILE.
func (c *Context) GIDs(port int) ([]GIDEntry, error) {
	const op = "read GIDs"
	if err := c.checkPort(op, port); err != nil {
		return nil, err
	}
	entries, err := c.gidTable(port)
	if err != nil {
		return nil, err
	}
	return entries, c.nameNetdevs(op, entries)
}

// gidTable returns the entries of a port without the names of their network interfaces. It
// issues one command, whatever the number of entries.
func (c *Context) gidTable(port int) ([]GIDEntry, error) {
	room, err := c.gidRoom()
	if err != nil || room == 0 {
		return nil, err
	}
	buf := make([]byte, room*gidEntrySize)
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
	var mine []GIDEntry
	for i := range entries {
		if int(entries[i].PortNum) == port {
			mine = append(mine, gidEntry(&entries[i]))
		}
	}
	return mine, nil
}

// gidRoom returns how many entries the GID tables of all ports can have together. The kernel
// refuses a buffer that is too small for the entries in use. The size of a table does not
// change while the device exists.
func (c *Context) gidRoom() (int, error) {
	if room := c.gids.room.Load(); room != 0 {
		return int(room), nil
	}
	room := 0
	for port := 1; port <= c.device.Ports; port++ {
		a, err := c.QueryPort(port)
		if err != nil {
			return 0, err
		}
		room += a.GIDTableLen
	}
	room = min(room, maxGIDEntries)
	c.gids.room.Store(int32(room))
	return room, nil
}

// queryGID returns one entry without the name of its network interface.
func (c *Context) queryGID(port, index int) (GIDEntry, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_GID_ENTRY)
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_PORT, uint64(port))
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, uint64(index))
	cmd.Uint32(uapi.UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0)
	e := ioctl.OutOf[uapi.IbUverbsGidEntry](cmd, uapi.UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY)
	if err := c.dev.Do(cmd); err != nil {
		return GIDEntry{}, err
	}
	return gidEntry(e), nil
}

// findGID returns the index of the first entry of a port that has the GID and the protocol:
// RoCE v2, or one whose packets have a GRH. ok is false if there is no such entry.
//
// It remembers the index of each GID that it has found, and asks the kernel whether the entry
// is still the same: GIDs change with the addresses of network interfaces. That is one command,
// whatever the size of the table.
func (c *Context) findGID(port int, gid GID, v2 bool) (index uint8, ok bool, err error) {
	fits := func(e GIDEntry) bool {
		return e.GID == gid && (e.Type == GIDTypeRoCEv2) == v2 && e.Index <= math.MaxUint8
	}
	key := gidKey{gid: gid, port: port, v2: v2}
	if index, ok := c.gids.hint(key); ok {
		if e, err := c.queryGID(port, int(index)); err == nil && fits(e) {
			return index, true, nil
		}
	}
	entries, err := c.gidTable(port)
	if err != nil {
		return 0, false, err
	}
	i := slices.IndexFunc(entries, fits)
	if i < 0 {
		c.gids.forget(key)
		return 0, false, nil
	}
	index = uint8(entries[i].Index)
	c.gids.remember(key, index)
	return index, true, nil
}

// A gidKey is the argument of a search by findGID.
type gidKey struct {
	gid  GID
	port int
	v2   bool
}

// gidHints are the indexes at which GIDs were found. They are checked at each use.
type gidHints struct {
	room  atomic.Int32 // see gidRoom
	mu    sync.Mutex
	index map[gidKey]uint8
}

// maxGIDHints limits gidHints on a host whose addresses keep changing.
const maxGIDHints = 1024

func (h *gidHints) hint(k gidKey) (index uint8, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	index, ok = h.index[k]
	return index, ok
}

func (h *gidHints) remember(k gidKey, index uint8) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.index == nil || len(h.index) == maxGIDHints {
		h.index = make(map[gidKey]uint8)
	}
	h.index[k] = index
}

func (h *gidHints) forget(k gidKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.index, k)
}

// netdevNames is a variable so that tests can replace it.
var netdevNames = nldev.NetdevNames

// nameNetdevs adds the names of network interfaces. It looks each interface up only once, as
// many GIDs may belong to the same one.
func (c *Context) nameNetdevs(op string, entries []GIDEntry) error {
	var indexes []int
	for _, e := range entries {
		if e.IfIndex != 0 && !slices.Contains(indexes, e.IfIndex) {
			indexes = append(indexes, e.IfIndex)
		}
	}
	if len(indexes) == 0 {
		return nil
	}
	names, err := netdevNames(indexes)
	if err != nil {
		return explainNetdevs(op, c.name, err)
	}
	for i := range entries { // an interface of another namespace has no name here
		entries[i].Netdev = names[entries[i].IfIndex]
	}
	return nil
}

// explainNetdevs adds the cause and the fix to an error of reading the names of network
// interfaces.
func explainNetdevs(op, object string, err error) error {
	errno := errnoOf(err)
	detail := "the names of the GIDs' network interfaces cannot be read: " + err.Error()
	switch errno {
	case unix.EMFILE:
		detail = "the names of the GIDs' network interfaces cannot be read: " + explainFDs(errno)
	case unix.EACCES, unix.EPERM, unix.EAFNOSUPPORT:
		detail += ": allow sockets of AF_UNIX, AF_INET or AF_INET6 (RestrictAddressFamilies in a systemd unit," +
			" a seccomp filter), or mount /sys"
	}
	return &Error{Op: op, Object: object, Errno: errno, Detail: detail}
}

func gidEntry(e *uapi.IbUverbsGidEntry) GIDEntry {
	return GIDEntry{GID: e.Gid, Port: int(e.PortNum), Index: int(e.GidIndex), Type: GIDType(e.GidType), IfIndex: int(e.NetdevIfindex)}
}
