package nldev

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// client sends requests to the kernel. Tests use another transport and another sysfs.
type client struct {
	dial func() (transport, error)
	sys  Sysfs
}

// kernel is the client used by the package's functions.
var kernel = client{dial: dialKernel, sys: Sysfs{Root: "/sys"}}

const (
	maxReply   = 16 << 20 // bytes of one reply, all datagrams together
	maxRetries = 8        // dumps that the kernel marked as interrupted
)

// conn is an open transport with its sequence number.
type conn struct {
	t   transport
	seq uint32
}

// open dials, and explains the error if the protocol is missing.
func (c client) open(op, object string) (*conn, error) {
	t, err := c.dial()
	if err == nil {
		return &conn{t: t}, nil
	}
	e := &Error{Op: op, Object: object}
	if !errors.As(err, &e.Errno) {
		return nil, err
	}
	switch e.Errno {
	case unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT:
		if c.sys.hasRDMA() {
			e.Hint = "a sandbox forbids netlink sockets"
			break
		}
		e.sentinel = ErrNoRDMA
		e.Hint = NoRDMA
	case unix.EPERM, unix.EACCES:
		e.Hint = "a sandbox forbids NETLINK_RDMA sockets"
	}
	return nil, e
}

// request sends one request on a separate transport, as conn.ask.
func (c client) request(op, object string, cmd uint16, dump bool, attrs []byte, restart func(),
	f func(payload []byte) error) error {
	conn, err := c.open(op, object)
	if err != nil {
		return err
	}
	defer conn.t.close()
	return conn.ask(op, object, cmd, dump, attrs, restart, f)
}

// requestOf is as request, for a device given by name: its index is the only attribute.
func (c client) requestOf(op, dev string, cmd uint16, dump bool, restart func(), f func(payload []byte) error) error {
	conn, err := c.open(op, dev)
	if err != nil {
		return err
	}
	defer conn.t.close()
	index, err := conn.find(op, dev)
	if err != nil {
		return err
	}
	return conn.ask(op, dev, cmd, dump, appendU32(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, index), restart, f)
}

// ask sends one request and calls f with the payload of every reply. If the kernel reports a dump
// as interrupted, ask calls restart and repeats the dump from its start.
func (c *conn) ask(op, object string, cmd uint16, dump bool, attrs []byte, restart func(),
	f func(payload []byte) error) error {
	for range maxRetries {
		intr, err := c.askOnce(op, object, cmd, dump, attrs, f)
		if err != nil {
			return err
		}
		if !intr {
			return nil
		}
		restart()
	}
	return &Error{Op: op, Object: object, Errno: unix.EINTR, Text: errInterrupted.Error(), sentinel: errInterrupted}
}

func (c *conn) askOnce(op, object string, cmd uint16, dump bool, attrs []byte,
	f func([]byte) error) (intr bool, err error) {
	c.seq++
	// A dump ends with NLMSG_DONE, other requests with the acknowledgement.
	flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK)
	if dump {
		flags = unix.NLM_F_REQUEST | unix.NLM_F_DUMP
	}
	if err := c.t.send(appendRequest(nil, cmd, flags, c.seq, attrs)); err != nil {
		return false, wrap(op, object, err)
	}
	for total := 0; total <= maxReply; {
		b, err := c.t.receive()
		if err != nil {
			return false, wrap(op, object, err)
		}
		total += len(b) + 1
		msgs, err := parseMessages(b)
		if err != nil {
			return false, wrap(op, object, err)
		}
		for _, m := range msgs {
			intr = intr || m.flags&unix.NLM_F_DUMP_INTR != 0
			done, err := c.handle(op, object, cmd, m, f)
			if err != nil {
				return false, wrap(op, object, err)
			}
			if done {
				return intr, nil
			}
		}
	}
	return false, wrap(op, object, malformed("more than %d bytes", maxReply))
}

// handle processes one message and reports whether it was the last.
func (c *conn) handle(op, object string, cmd uint16, m message, f func([]byte) error) (done bool, err error) {
	if m.seq != c.seq {
		return false, malformed("sequence number %d, want %d", m.seq, c.seq)
	}
	switch m.typ {
	case unix.NLMSG_NOOP:
		return false, nil
	case unix.NLMSG_OVERRUN:
		return false, malformed("overrun")
	case unix.NLMSG_DONE:
		// A dump that fails half-way has an error code after the header.
		if len(m.payload) >= 4 {
			if code := int32(order.Uint32(m.payload)); code < 0 && code >= -4095 {
				return true, &Error{Op: op, Object: object, Errno: unix.Errno(-code)}
			}
		}
		return true, nil
	case unix.NLMSG_ERROR:
		errno, msg, err := ackError(m)
		if err != nil {
			return false, err
		}
		if errno != 0 {
			return true, &Error{Op: op, Object: object, Errno: errno, Text: msg}
		}
		return true, nil
	case messageType(cmd):
		return false, f(m.payload)
	}
	return false, malformed("message type %#x, want %#x", m.typ, messageType(cmd))
}

// wrap returns an *Error for an errno from the transport. Other errors keep their type, with op
// and object added to the text.
func wrap(op, object string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	e = &Error{Op: op, Object: object}
	if errors.As(err, &e.Errno) {
		e.Text = err.Error()
		return e
	}
	return &replyError{op: op, object: object, err: err}
}

// replyError is the error for a reply that could not be decoded.
type replyError struct {
	op, object string
	err        error
}

func (e *replyError) Error() string {
	if e.object == "" {
		return "rdma netlink: " + e.op + ": " + e.err.Error()
	}
	return "rdma netlink: " + e.op + " " + e.object + ": " + e.err.Error()
}

func (e *replyError) Unwrap() error { return e.err }
