package rsocket

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// mappings is a connection's part for memory that is written by its offset.
type mappings struct {
	theirs      []mapping      // that WriteAt reaches
	ours        []*Mapping     // that the peer's WriteAt reaches, by index
	registering sync.WaitGroup // calls of MapMemory that register memory
}

// A Mapping is memory that the peer may write.
type Mapping struct {
	conn   *Conn
	index  int
	offset uint64
	mr     *uverbs.MR // nil after Close
}

// MapMemory lets the peer write to b without this side taking part: riomap in C. The peer's [Conn.WriteAt] (riowrite)
// reaches b at the offsets from off on. An off of -1 stands for the address of b, which [Mapping.Offset] returns. What
// the peer has written is complete when data that it has sent afterwards was read. The program must not access b in
// between.
//
// The peer learns of the mapping before anything that is written after MapMemory has returned. MapMemory waits as Write
// does, with its errors. It returns [ErrMapping] if the peer has no room for as many: see Config.Mappings of the peer.
// The other errors are those of [uverbs.PD.RegMR].
func (c *Conn) MapMemory(b []byte, off int64) (*Mapping, error) {
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	m, err := c.newMapping(b, off)
	if err != nil {
		return nil, c.opError("map memory for", err)
	}
	c.mu.Lock()
	defer c.unlock()
	err = c.wait(&c.writer, needMapping, 0)
	if err == nil {
		err = c.writeError()
	}
	if err != nil {
		return nil, c.opError("map memory for", errors.Join(err, m.close()))
	}
	c.sendMapping(m)
	return m, nil
}

// newMapping registers b and finds an index for it. The caller holds the lock of c.writer.
func (c *Conn) newMapping(b []byte, off int64) (*Mapping, error) {
	index, err := c.startMapping(off)
	if err != nil {
		return nil, err
	}
	defer c.registering.Done()
	mr, err := c.pd.RegMR(b, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	m := &Mapping{conn: c, index: index, offset: uint64(off), mr: mr}
	if off == -1 {
		m.offset = mr.Addr()
	}
	c.mu.Lock()
	defer c.unlock()
	if index == len(c.ours) {
		c.ours = append(c.ours, nil)
	}
	c.ours[index] = m
	return m, nil
}

// startMapping checks whether memory can be mapped, and returns the index of the mapping. Close waits until
// it is registered.
func (c *Conn) startMapping(off int64) (index int, err error) {
	c.mu.Lock()
	defer c.unlock()
	for index < len(c.ours) && c.ours[index] != nil {
		index++
	}
	switch {
	case c.closed:
		return 0, net.ErrClosed
	case off < -1:
		return 0, fmt.Errorf("%w: an offset of %d", uverbs.ErrInvalid, off)
	case index >= c.peer.mappings:
		return 0, fmt.Errorf("%w: the peer has room for %d mappings: set its Config.Mappings", ErrMapping, c.peer.mappings)
	}
	c.registering.Add(1)
	return index, nil
}

// sendMapping writes the entry of m to the peer's table.
func (c *Conn) sendMapping(m *Mapping) {
	var payload [mappingLen]byte
	entry := mapping{m.offset, sge{addr: m.mr.Addr(), key: m.mr.RKey(), length: uint32(m.mr.Len())}}
	entry.put(payload[:], c.peer.order)
	to := c.peer.list
	to.addr += uint64(c.peer.list.length)*sgeLen + uint64(m.index)*mappingLen
	c.sent++
	c.sendControl(immediate(opMapping, m.index), to, payload[:], true)
}

// Offset returns the offset of the memory for the peer's WriteAt.
func (m *Mapping) Offset() int64 { return int64(m.offset) }

// Close takes the right from the peer, which is not told: the connection breaks if it writes to the memory
// afterwards. Close is idempotent. Close of the connection closes its mappings.
func (m *Mapping) Close() error {
	c := m.conn
	c.mu.Lock()
	defer c.unlock()
	return c.opError("unmap memory for", m.close())
}

// close is Close. The caller holds the lock of the connection.
func (m *Mapping) close() error {
	if m.mr == nil {
		return nil
	}
	if err := m.mr.Close(); err != nil {
		return err
	}
	m.mr = nil
	m.conn.ours[m.index] = nil
	return nil
}

// closeMappings closes the mappings when the QP no longer exists.
func (c *Conn) closeMappings() error {
	c.registering.Wait()
	c.mu.Lock()
	ours := slices.Clone(c.ours)
	c.mu.Unlock()
	var errs []error
	for _, m := range ours {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(errs...)
}

// receiveMapping handles a message of op opMapping: the peer has written entry i of the table.
func (c *Conn) receiveMapping(i, payload int) {
	if i >= c.config.Mappings || payload != mappingLen {
		c.fail(errBadBuffer)
		return
	}
	if c.theirs == nil {
		c.theirs = make([]mapping, c.config.Mappings)
	}
	c.theirs[i] = parseMapping(c.listMemory()[listEntries*sgeLen+i*mappingLen:], binary.NativeEndian)
}

// find returns where the bytes at an offset are in the memory of the peer, and how many.
func (c *Conn) find(offset uint64) (sge, bool) {
	for _, m := range c.theirs {
		if skip := offset - m.offset; offset >= m.offset && skip < uint64(m.length) {
			return sge{addr: m.addr + skip, key: m.key, length: m.length - uint32(skip)}, true
		}
	}
	return sge{}, false
}

// WriteAt writes b to memory that the peer has mapped: riowrite in C. It is done when the peer has read data that was
// written afterwards. WriteAt waits, and copies b to the send buffer, as Write does, with its errors. It returns
// [ErrMapping] and the number of bytes before them if bytes are not within the mappings that the peer has announced.
func (c *Conn) WriteAt(b []byte, off int64) (n int, err error) {
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	c.pollAll() // the peer may have mapped memory just now
	for n < len(b) {
		part := b[n:min(n+maxTransfer, len(b))]
		if err := c.wait(&c.writer, needRoom, uint64(len(part))); err != nil {
			return n, c.opError("write", err)
		}
		if err := c.writeError(); err != nil {
			return n, c.opError("write", err)
		}
		to, ok := c.find(uint64(off) + uint64(n))
		if off < 0 || !ok {
			return n, c.opError("write", fmt.Errorf("%w: offset %d", ErrMapping, off+int64(n)))
		}
		part = part[:min(len(part), int(to.length))]
		if len(part) > c.inline {
			part = part[:min(len(part), c.free)]
			c.fill(part)
		}
		c.writeTo(to, part)
		n += len(part)
	}
	return n, nil
}

// writeTo writes data to the peer's memory. If it is longer than c.inline, it is in the send buffer already.
func (c *Conn) writeTo(to sge, data []byte) {
	bytes := 0
	if len(data) > c.inline {
		bytes = len(data)
	}
	id, flags := c.number(bytes, false, false)
	b := c.qp.StartSend()
	b.Write(id, flags, to.addr, to.key)
	if bytes == 0 {
		b.Inline(data)
	} else {
		c.addRing(&b, bytes)
	}
	c.submit(&b)
}
