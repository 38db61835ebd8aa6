package rsocket

import (
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// WriteMR writes n bytes of mr, from off on, without copying them. It returns when the peer's device has received them,
// so that the memory may be changed again. The MR belongs to the PD of c.CM(): the connection's own, or
// Config.PD.
//
// The errors are those of [Conn.Write], and [uverbs.ErrInvalid] for a range that is not within mr, or an MR of another
// PD. After an error, the number of bytes includes those on their way: the device may read the memory until Close.
func (c *Conn) WriteMR(mr *uverbs.MR, off, n int) (int, error) {
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	if err := c.checkRange(mr, off, n); err != nil {
		return 0, c.opError("write", err)
	}
	posted := 0
	for posted < n {
		if err := c.waitToSend(0); err != nil {
			return posted, c.opError("write", err)
		}
		posted += c.sendPart(mr, off+posted, n-posted)
	}
	last := c.tail
	if err := c.wait(&c.writer, needCompleted, last); err != nil {
		return posted, c.opError("write", err)
	}
	if c.done < last {
		return posted, c.opError("write", c.err)
	}
	return posted, nil
}

func (c *Conn) checkRange(mr *uverbs.MR, off, n int) error {
	switch {
	case mr.PD() != c.pd:
		return fmt.Errorf("%w: the MR has another PD than the connection: use CM().PD() or Config.PD", uverbs.ErrInvalid)
	case off < 0 || n < 0 || n > mr.Len()-off:
		return fmt.Errorf("%w: bytes [%d, %d) of an MR of %d", uverbs.ErrInvalid, off, off+n, mr.Len())
	}
	return nil
}

// sendPart sends a part of the n bytes at off, and returns how many. The last request has a completion.
func (c *Conn) sendPart(mr *uverbs.MR, off, n int) int {
	part := min(n, int(min(c.target.length, maxData)))
	id, flags := c.number(0, false, part == n)
	to, imm := c.aim(part)
	b := c.qp.StartSend()
	c.startMessage(&b, id, flags, to, imm)
	b.SGE(mr.SGE(off, part))
	c.submitMessage(&b, id, flags, imm)
	return part
}
