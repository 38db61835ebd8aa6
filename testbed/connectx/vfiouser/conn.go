package vfiouser

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// conn is the connection to a machine.
type conn struct {
	server *Server
	stream stream
	host   *Host // nil until the version is negotiated

	header header // of the current message
	body   []byte
	reply  []byte // body of its reply
	err    error
}

// serve processes messages until the stream ends.
func (c *conn) serve() error {
	work := c.work // one closure for all messages
	for {
		var err error
		c.header, c.body, err = c.stream.next()
		if err != nil {
			if err == io.EOF {
				return nil
			}
			return errors.Join(c.name(err), c.stream.closeRest())
		}
		c.reply, c.err = append(c.reply[:0], make([]byte, headerSize)...), nil
		if err := c.server.step(work); err != nil {
			c.err = err
		}
		if err := c.stream.closeRest(); err != nil {
			return err
		}
		if err := c.respond(); err != nil {
			return err
		}
	}
}

// work processes the current message, inside of Run.
func (c *conn) work() {
	if c.header.flags&^(flagType|flagNoReply) != 0 {
		c.err = refused(unix.EINVAL, "flags %#x", c.header.flags)
		return
	}
	if c.host == nil && c.header.command != Version {
		c.err = malformed(c.header.command, "the first message has to be VERSION")
		return
	}
	for i := range messages {
		if m := &messages[i]; m.command == c.header.command {
			c.err = m.check(c)
			if c.err == nil {
				c.err = m.handle(c)
			}
			return
		}
	}
	c.err = refused(unix.ENOTSUP, "not supported")
}

// respond sends the reply to the current message, if it has one, and reports
// its error. It returns an error that ends the connection.
func (c *conn) respond() error {
	h := header{id: c.header.id, command: c.header.command, flags: flagReply}
	var e *Error
	if c.err != nil {
		c.err = c.name(c.err)
		if !errors.As(c.err, &e) {
			return c.err
		}
		c.reply = c.reply[:headerSize]
		h.flags, h.errno = h.flags|flagError, uint32(e.Errno)
	}
	if c.header.flags&flagNoReply == 0 && (e == nil || e.Errno != 0) {
		h.size = uint32(len(c.reply))
		h.put(c.reply)
		if _, err := c.stream.conn.Write(c.reply); err != nil {
			return &Error{Kind: ErrLost, Command: h.command, Detail: "writing the reply", Err: err}
		}
	}
	if e == nil {
		return nil
	}
	if errors.Is(e, ErrMalformed) {
		return c.err
	}
	c.server.Report(c.err)
	return nil
}

// name adds the current command to an error.
func (c *conn) name(err error) error {
	var e *Error
	if errors.As(err, &e) && e.Command == 0 {
		e.Command = c.header.command
	}
	return err
}

// disconnect disconnects the device from the machine.
func (c *conn) disconnect() error {
	if c.host == nil {
		return nil
	}
	var closed error
	err := c.server.step(func() {
		closed = c.host.close()
		c.server.Device.Disconnect()
	})
	return errors.Join(err, closed)
}
