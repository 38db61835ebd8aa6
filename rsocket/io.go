package rsocket

import (
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/goverbs/goverbs/uverbs"
)

// Read reads what has arrived, up to the length of b, and waits if nothing has. It returns io.EOF when the peer has
// closed its side and everything was read.
//
// The error is a [*net.OpError]. It matches [os.ErrDeadlineExceeded] after the deadline, [net.ErrClosed] after Close,
// [syscall.ECONNRESET] if the connection has ended in another way, and [ErrProtocol] if that is due to what the peer
// has sent.
func (c *Conn) Read(b []byte) (int, error) {
	c.reader.lock.Lock()
	defer c.reader.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	if len(b) == 0 && !c.closed { // as in package net, whatever else has happened
		return 0, nil
	}
	if err := c.waitToRead(); err != nil {
		return 0, c.opError("read", err)
	}
	return c.read(b), nil
}

// waitToRead waits until there is something to read. It returns an error if there will be no more.
func (c *Conn) waitToRead() error {
	if err := c.wait(&c.reader, needData, 0); err != nil {
		return err
	}
	if c.available == 0 {
		return c.readError()
	}
	return nil
}

// read copies what there is to read to b, and returns how much. The caller holds the lock of c.reader, and c.mu.
func (c *Conn) read(b []byte) int {
	n := min(len(b), c.available)
	first := copy(b[:n], c.recvBuffer[c.recvPos:])
	copy(b[first:n], c.recvBuffer)
	c.consume(n)
	return n
}

// readError returns why there will be no more to read, or nil.
func (c *Conn) readError() error {
	switch {
	case c.readClosed || c.peerEOF:
		return io.EOF
	default:
		return c.err
	}
}

// writeError returns why nothing can be written, or nil.
func (c *Conn) writeError() error {
	switch {
	case c.writeClosed:
		return errWriteClosed
	case c.peerClosed:
		return errPeerClosed
	default:
		return c.err
	}
}

// Write copies b to the send buffer, in parts if it is longer, and returns when the device has been told of all of it.
// Close waits until the peer has received it. The errors are those of [Conn.Read]; after CloseWrite, the error matches
// [syscall.EPIPE].
func (c *Conn) Write(b []byte) (int, error) {
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	n, err := c.write(b)
	return n, c.opError("write", err)
}

// write writes b. The caller holds the lock of c.writer, and c.mu.
func (c *Conn) write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, c.waitFor(needNothing, 0)
	}
	for most := firstTransfer; n < len(b); most = min(4*most, maxTransfer) {
		// The first messages are short, so that the device starts early.
		part := b[n:min(n+most, len(b))]
		if err := c.waitToSend(len(part)); err != nil {
			return n, err
		}
		part = part[:c.transfer(len(part))]
		if len(part) <= c.inline {
			c.sendInline(part)
		} else {
			c.fill(part)
			c.sendRing(len(part))
		}
		n += len(part)
	}
	return n, nil
}

// waitToSend waits until a part of n bytes can be sent. It returns an error if nothing can be sent any more.
func (c *Conn) waitToSend(n int) error { return c.waitFor(needSend, n) }

// waitFor waits for what a call that writes needs. It returns an error if nothing can be sent any more.
func (c *Conn) waitFor(need need, amount int) error {
	if err := c.wait(&c.writer, need, uint64(amount)); err != nil {
		return err
	}
	return c.writeError()
}

// fill copies b to where the next bytes of the send buffer are. Only a call that writes uses this part of it.
func (c *Conn) fill(b []byte) {
	first := copy(c.sendBuffer[c.sendPos:], b)
	copy(c.sendBuffer, b[first:])
}

// WriteBuffers writes the buffers one after the other, in as few messages as possible, and removes from v what it has
// written. Unlike [net.Buffers.WriteTo] it does not send a message for each. The errors are those of [Conn.Write].
func (c *Conn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	left := 0
	for _, b := range *v {
		left += len(b)
	}
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	if left == 0 {
		if err := c.waitFor(needNothing, 0); err != nil {
			return 0, c.opError("write", err)
		}
	}
	for left > 0 {
		if err := c.waitToSend(min(left, maxTransfer)); err != nil {
			return n, c.opError("write", err)
		}
		part := c.writePart(v, c.transfer(min(left, maxTransfer)))
		n += int64(part)
		left -= part
	}
	*v = (*v)[len(*v):] // those that were empty
	return n, nil
}

// writePart sends at most the first n bytes of v, and returns how many.
func (c *Conn) writePart(v *net.Buffers, n int) int {
	if n <= c.inline {
		var b [maxInline]byte
		_, _ = v.Read(b[:n]) // there are as many
		c.sendInline(b[:n])
		return n
	}
	part := c.sendBuffer[c.sendPos:]
	part = part[:min(len(part), n)]
	_, _ = v.Read(part)
	c.sendRing(len(part))
	return len(part)
}

// A copyBuffer has the data between a connection and the Reader or Writer of a caller. The Writer is not given the
// receive buffer, which the peer could change while it is written, and again before the next Writer.
type copyBuffer [maxTransfer]byte

var copyBuffers = sync.Pool{New: func() any { return new(copyBuffer) }}

// ReadFrom writes what it reads from r, until r returns io.EOF. It returns the errors of r, and those of [Conn.Write].
// While it waits for r, other calls may write.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	b := copyBuffers.Get().(*copyBuffer)
	defer copyBuffers.Put(b)
	for {
		k, readErr := r.Read(b[:]) // also if nothing can be written any more: r may have no more data
		if k < 0 || k > len(b) {
			return n, countError(r, "Read", k, len(b))
		}
		if k > 0 {
			k, err := c.Write(b[:k])
			n += int64(k)
			if err != nil {
				return n, err
			}
		}
		if readErr == io.EOF {
			return n, nil
		}
		if readErr != nil {
			return n, readErr
		}
	}
}

// WriteTo writes what arrives to w, until the peer has closed its side. It returns the errors of w, and those of
// [Conn.Read]. What w has not accepted is lost. While WriteTo waits for w, other calls may read.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	for {
		b, part, err := c.readBuffer()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, c.opError("read", err)
		}
		k, err := w.Write(b[:part])
		copyBuffers.Put(b)
		if k < 0 || k > part {
			return n, countError(w, "Write", k, part)
		}
		n += int64(k)
		if err == nil && k < part {
			err = io.ErrShortWrite
		}
		if err != nil {
			return n, err
		}
	}
}

// readBuffer reads to a buffer, which it does not need while it waits.
func (c *Conn) readBuffer() (*copyBuffer, int, error) {
	c.reader.lock.Lock()
	defer c.reader.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	if err := c.waitToRead(); err != nil {
		return nil, 0, err
	}
	b := copyBuffers.Get().(*copyBuffer)
	return b, c.read(b[:]), nil
}

// countError is the error of a Reader or Writer that breaks the rules.
func countError(v any, method string, n, most int) error {
	return fmt.Errorf("%w: %s of %T has returned a count of %d for %d bytes", uverbs.ErrInvalid, method, v, n, most)
}
