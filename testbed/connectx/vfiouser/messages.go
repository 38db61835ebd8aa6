package vfiouser

import (
	"bytes"
	"encoding/json"

	"golang.org/x/sys/unix"
)

// messages are the supported commands.
var messages = [...]message{
	{RegionWrite, accessSize, accessSize + maxTransfer, false, (*conn).regionWrite}, // by frequency
	{RegionRead, accessSize, accessSize, false, (*conn).regionRead},
	{RegionWrites, 8, maxMessage, false, (*conn).regionWrites},
	{Version, 4, maxMessage, false, (*conn).version},
	{DMAMap, 32, 32, true, (*conn).dmaMap},
	{DMAUnmap, 24, 24, false, (*conn).dmaUnmap},
	{GetInfo, 16, 16, false, (*conn).info},
	{RegionInfo, 32, 32, false, (*conn).regionInfo},
	{IRQInfo, 16, 16, false, (*conn).irqInfo},
	{SetIRQs, 20, 20 + MaxIRQs, true, (*conn).setIRQs},
	{DeviceReset, 0, 0, false, (*conn).reset},
}

// A message describes a command and its body.
type message struct {
	command  Command
	min, max int  // bytes of its body
	fds      bool // it may have descriptors
	handle   func(*conn) error
}

func (m *message) check(c *conn) error {
	switch n := len(c.body); {
	case n < m.min || n > m.max:
		return refused(unix.EINVAL, "a body of %d bytes", n)
	case len(c.stream.fds) > 0 && !m.fds:
		return refused(unix.EINVAL, "%d descriptors, want none", len(c.stream.fds))
	}
	return nil
}

// capabilities is the JSON of VERSION, as far as it is used.
type capabilities struct {
	Capabilities struct {
		MaxFDs        *uint64 `json:"max_msg_fds,omitempty"`
		MaxTransfer   *uint64 `json:"max_data_xfer_size,omitempty"`
		MaxMaps       *uint64 `json:"max_dma_maps,omitempty"`
		PageSizes     *uint64 `json:"pgsizes,omitempty"`
		WriteMultiple *bool   `json:"write_multiple,omitempty"`
	} `json:"capabilities"`
}

// version negotiates the version, and connects the device.
func (c *conn) version() error {
	if c.host != nil {
		return refused(unix.EINVAL, "the version is already negotiated")
	}
	got, wantMinor := order.Uint16(c.body), order.Uint16(c.body[2:])
	var theirs capabilities
	if text := c.body[4:]; len(text) > 0 {
		end := bytes.IndexByte(text, 0)
		if end != len(text)-1 {
			return malformed(Version, "the text does not end at its first NUL")
		}
		if err := json.Unmarshal(text[:end], &theirs); err != nil {
			return &Error{Kind: ErrMalformed, Command: Version, Errno: unix.EINVAL, Detail: "capabilities", Err: err}
		}
	}
	if got != major {
		return &Error{Kind: ErrMalformed, Command: Version, Errno: unix.EINVAL, Detail: "only major version 0 is supported"}
	}
	host, err := newHost(c.server.Device)
	if err != nil {
		return err
	}
	text, err := json.Marshal(supported(theirs))
	if err != nil {
		return err
	}
	c.reply = order.AppendUint16(c.reply, major)
	c.reply = order.AppendUint16(c.reply, min(wantMinor, minor))
	c.reply = append(append(c.reply, text...), 0)
	c.host = host
	c.server.Device.Connect(host)
	return nil
}

// supported returns the server's capabilities: those that the client knows, and
// limits.
func supported(theirs capabilities) capabilities {
	number := func(n uint64) *uint64 { return &n }
	var c capabilities
	c.Capabilities.MaxFDs = number(maxFDs)
	c.Capabilities.MaxTransfer = number(maxTransfer)
	c.Capabilities.MaxMaps = number(maxMaps)
	c.Capabilities.PageSizes = number(pageSize)
	c.Capabilities.WriteMultiple = theirs.Capabilities.WriteMultiple
	return c
}

// The flags of DMA_MAP and DMA_UNMAP.
const (
	dmaRead  = 1
	dmaWrite = 2
	unmapAll = 2
)

func (c *conn) dmaMap() error {
	b := c.body
	flags, offset, addr, size := order.Uint32(b[4:]), order.Uint64(b[8:]), order.Uint64(b[16:]), order.Uint64(b[24:])
	fd := -1
	switch n := len(c.stream.fds); {
	case n > 1:
		return refused(unix.EINVAL, "%d descriptors for one piece of memory", n)
	case flags&^(dmaRead|dmaWrite) != 0 || flags == 0:
		return refused(unix.EINVAL, "flags %#x", flags)
	case n == 1:
		fd = c.stream.fds[0] // the mapping keeps the file open
	}
	return c.host.memory.add(addr, size, fd, offset, flags&dmaWrite != 0)
}

func (c *conn) dmaUnmap() error {
	b := c.body
	flags, addr, size := order.Uint32(b[4:]), order.Uint64(b[8:]), order.Uint64(b[16:])
	var err error
	switch {
	case flags&^unmapAll != 0:
		return refused(unix.EINVAL, "flags %#x", flags)
	case flags == unmapAll && (addr != 0 || size != 0):
		return refused(unix.EINVAL, "all mappings, but also %#x bytes at %#x", size, addr)
	case flags == unmapAll:
		err = c.host.memory.close()
	default:
		err = c.host.memory.remove(addr, size)
	}
	c.reply = append(c.reply, b...)
	return err
}

// The flags of DEVICE_GET_INFO and DEVICE_GET_REGION_INFO.
const (
	deviceReset  = 1
	devicePCI    = 2
	regionReads  = 1
	regionWrites = 2
)

func (c *conn) info() error {
	if err := c.argsz(16); err != nil {
		return err
	}
	c.reply = append32(c.reply, 16, deviceReset|devicePCI, regions, uint32(kinds))
	return nil
}

// argsz checks that the client has room for the reply.
func (c *conn) argsz(need uint32) error {
	if n := order.Uint32(c.body); n < need {
		return refused(unix.EINVAL, "room for %d bytes of the reply's %d", n, need)
	}
	return nil
}

func (c *conn) regionInfo() error {
	index := order.Uint32(c.body[8:])
	if index >= regions {
		return refused(unix.EINVAL, "region %d", index)
	}
	if err := c.argsz(32); err != nil {
		return err
	}
	r := c.server.Device.Region(int(index))
	var flags uint32
	if r.Size > 0 {
		flags = regionReads
		if !r.ReadOnly {
			flags |= regionWrites
		}
	}
	c.reply = append32(c.reply, 32, flags, index, 0)
	c.reply = append64(c.reply, r.Size, 0)
	return nil
}

func (c *conn) reset() error {
	c.server.Device.Reset()
	return nil
}

// access checks a range of a region.
func (c *conn) access(region uint32, offset, count uint64, write bool) error {
	if region >= regions {
		return refused(unix.EINVAL, "region %d", region)
	}
	switch r := c.server.Device.Region(int(region)); {
	case offset > r.Size || count > r.Size-offset:
		return refused(unix.EINVAL, "%d bytes at %#x of region %d of %#x bytes", count, offset, region, r.Size)
	case write && r.ReadOnly:
		return refused(unix.EACCES, "region %d is read-only", region)
	}
	return nil
}

func (c *conn) regionRead() error {
	offset, region, count := order.Uint64(c.body), order.Uint32(c.body[8:]), order.Uint32(c.body[12:])
	if count > maxTransfer {
		return refused(unix.EINVAL, "%d bytes in one message", count)
	}
	if err := c.access(region, offset, uint64(count), false); err != nil {
		return err
	}
	c.reply = append(c.reply, c.body...)
	start := len(c.reply)
	c.reply = append(c.reply, make([]byte, count)...)
	if err := c.server.Device.Read(int(region), offset, c.reply[start:]); err != nil {
		return deviceError(err)
	}
	return nil
}

func (c *conn) regionWrite() error {
	offset, region, count := order.Uint64(c.body), order.Uint32(c.body[8:]), order.Uint32(c.body[12:])
	data := c.body[accessSize:]
	if uint64(count) != uint64(len(data)) {
		return refused(unix.EINVAL, "a count of %d, and %d bytes", count, len(data))
	}
	if err := c.access(region, offset, uint64(count), true); err != nil {
		return err
	}
	if err := c.server.Device.Write(int(region), offset, data); err != nil {
		return deviceError(err)
	}
	c.reply = append(c.reply, c.body[:accessSize]...)
	return nil
}

// writeSize is the size of one write of REGION_WRITE_MULTI.
const writeSize = accessSize + 8

// regionWrites processes several short writes.
func (c *conn) regionWrites() error {
	n, writes := order.Uint64(c.body), c.body[8:]
	if len(writes)%writeSize != 0 || n != uint64(len(writes)/writeSize) {
		return refused(unix.EINVAL, "%d writes in %d bytes", n, len(writes))
	}
	for ; len(writes) > 0; writes = writes[writeSize:] {
		offset, region, count := order.Uint64(writes), order.Uint32(writes[8:]), order.Uint32(writes[12:])
		if count > 8 {
			return refused(unix.EINVAL, "a short write of %d bytes", count)
		}
		if err := c.access(region, offset, uint64(count), true); err != nil {
			return err
		}
		if err := c.server.Device.Write(int(region), offset, writes[accessSize:accessSize+count]); err != nil {
			return deviceError(err)
		}
	}
	c.reply = append64(c.reply, n)
	return nil
}
