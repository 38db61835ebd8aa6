package rsocket

import (
	"io"
	"net"
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
	if len(b) == 0 {
		return 0, nil
	}
	if err := c.wait(&c.reader, needData, 0); err != nil {
		return 0, c.opError("read", err)
	}
	n := min(len(b), c.available)
	if n == 0 {
		return 0, c.opError("read", c.readError())
	}
	first := copy(b[:n], c.recvBuffer[c.recvPos:])
	copy(b[first:n], c.recvBuffer)
	c.consume(n)
	return n, nil
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
	for most := firstTransfer; n < len(b); most = min(2*most, maxTransfer) {
		// The first message is short, so that the device starts early.
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

// WriteBuffers writes the buffers one after the other, as few messages as it takes, and removes from v what it has
// written. Unlike [net.Buffers.WriteTo] it does not send a message for each. The errors are those of [Conn.Write].
func (c *Conn) WriteBuffers(v *net.Buffers) (n int64, err error) {
	return c.ReadFrom(v)
}

// ReadFrom reads from r to the send buffer, without another copy, until r returns io.EOF. It returns the errors of r,
// and those of [Conn.Write]. While it reads from r, other calls that write wait.
func (c *Conn) ReadFrom(r io.Reader) (n int64, err error) {
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	for {
		// The peer need not have room: r may have no more data.
		if err := c.waitFor(needRoom, lowWater); err != nil {
			return n, c.opError("write", err)
		}
		room := c.sendBuffer[c.sendPos:]
		room = room[:min(len(room), c.free, maxTransfer)]
		c.unlock()
		k, err := r.Read(room)
		c.mu.Lock()
		for k > 0 {
			if err := c.waitToSend(k); err != nil {
				return n, c.opError("write", err)
			}
			part := c.transfer(k)
			c.sendRing(part)
			n += int64(part)
			k -= part
		}
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}

// WriteTo writes what arrives to w, without another copy, until the peer has closed its side. It returns the errors of
// w, and those of [Conn.Read]. While it writes to w, other calls that read wait.
func (c *Conn) WriteTo(w io.Writer) (n int64, err error) {
	c.reader.lock.Lock()
	defer c.reader.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	for {
		if err := c.wait(&c.reader, needData, 0); err != nil {
			return n, c.opError("read", err)
		}
		if c.available == 0 {
			if err := c.readError(); err != io.EOF {
				return n, c.opError("read", err)
			}
			return n, nil
		}
		part := c.recvBuffer[c.recvPos:]
		part = part[:min(len(part), c.available, maxTransfer)]
		c.unlock()
		k, err := w.Write(part)
		if k < len(part) && err == nil {
			err = io.ErrShortWrite
		}
		c.mu.Lock()
		n += int64(k)
		c.consume(k)
		if err != nil {
			return n, err
		}
	}
}
