package uverbs

import (
	"fmt"
	"math"
	"slices"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

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

// QueryGID returns an entry of a port's GID table: ibv_query_gid_ex(3). It returns
// [ErrInvalid] if the index is unused or beyond the table. [Context.GIDs] lists the
// entries in use.
func (c *Context) QueryGID(port, index int) (*GIDEntry, error) {
	g, err := c.unnamedGID(port, index)
	if err != nil {
		return nil, err
	}
	one := []GIDEntry{g}
	if err := c.nameNetdevs(opQueryGID, one); err != nil {
		return nil, err
	}
	return &one[0], nil
}

const opQueryGID = "query GID"

// unnamedGID is QueryGID without the name of the network interface, which needs a socket.
func (c *Context) unnamedGID(port, index int) (GIDEntry, error) {
	if err := c.checkPort(opQueryGID, port); err != nil {
		return GIDEntry{}, err
	}
	if index < 0 {
		return GIDEntry{}, invalid(opQueryGID, c.name, "the index must not be negative: "+sitoa(index))
	}
	g, err := c.queryGID(port, index)
	detail := ""
	if errno := errnoOf(err); errno == unix.ENODATA || errno == unix.EINVAL {
		detail = fmt.Sprintf("port %d has no GID at index %d: Context.GIDs lists those in use", port, index)
	}
	return g, c.wrap(opQueryGID, c.name, err, detail)
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

// netdevNames is a variable so that tests can replace it.
var netdevNames = machine.InterfaceNames

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
	names, err := netdevNames(c.machine, indexes)
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
	return GIDEntry{GID: e.Gid, Port: int(e.PortNum), Index: int(e.GidIndex), Type: GIDType(e.GidType),
		IfIndex: int(e.NetdevIfindex)}
}
