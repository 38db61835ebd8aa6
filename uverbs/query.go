package uverbs

import (
	"fmt"
	"slices"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

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

// PKeyIndex returns the index of a P_Key in a port's table: ibv_get_pkey_index(3).
// It returns [ErrInvalid] if the table does not contain it. Bit 15 counts: full and
// limited membership are different keys.
func (c *Context) PKeyIndex(port int, pkey uint16) (int, error) {
	keys, err := c.PKeys(port)
	if err != nil {
		return 0, err
	}
	if i := slices.Index(keys, pkey); i >= 0 {
		return i, nil
	}
	return 0, invalid("find P_Key", c.name, fmt.Sprintf("the P_Key table of port %d does not have %#04x: it has %#04x", port, pkey, keys))
}

// QueryClock returns the device's clock, the clock of WC.Timestamp, in ticks of
// DeviceAttr.HCACoreClock: ibv_query_rt_values_ex(3). It returns [ErrNotSupported]
// if the device has no clock that a program may read, as on rxe, and [ErrClosed]
// after Close.
func (c *Context) QueryClock() (uint64, error) {
	if c.ending.Load() {
		return 0, ErrClosed
	}
	p, ok := c.impl.(driver.Clock)
	if !ok {
		return 0, ErrNotSupported
	}
	count, err := p.QueryClock()
	if c.ending.Load() { // the clock's page may have been replaced by a zero page
		return 0, ErrClosed
	}
	return count, err
}

// QueryPortSpeed returns the speed of a port in units of 100 Mb/s:
// ibv_query_port_speed(3). It returns [ErrNotSupported] if the kernel or the device
// does not report it. [PortAttr] then has the speed and the number of lanes.
func (c *Context) QueryPortSpeed(port int) (uint64, error) {
	const op = "query port speed"
	if err := c.checkPort(op, port); err != nil {
		return 0, err
	}
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_DEVICE, uapi.UVERBS_METHOD_QUERY_PORT_SPEED)
	cmd.Uint64(uapi.UVERBS_ATTR_QUERY_PORT_SPEED_PORT_NUM, uint64(port))
	speed := ioctl.OutOf[uint64](cmd, uapi.UVERBS_ATTR_QUERY_PORT_SPEED_RESP)
	if err := c.dev.Do(cmd); err != nil {
		detail := ""
		if notSupported(err) {
			detail = "this kernel or device does not tell the speed of a port: multiply ActiveSpeed and ActiveWidth of Context.QueryPort"
		}
		return 0, c.wrap(op, c.name, err, detail)
	}
	return *speed, nil
}
