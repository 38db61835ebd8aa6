package nldev

import (
	"errors"
	"fmt"

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

// A query is a request to the kernel.
type query struct {
	op, object string // for errors
	cmd        uint16
	dump       bool
	attrs      []byte
	// ofDevice is set if object is the name of a device, whose index is the only attribute.
	ofDevice bool
}

// fetch sends q on a separate transport: see ask.
func fetch[T any](c client, q query, decode func(payload []byte) (T, error)) ([]T, error) {
	conn, err := c.open(q.op, q.object)
	if err != nil {
		return nil, err
	}
	defer conn.t.close()
	if q.ofDevice {
		index, err := conn.find(q.op, q.object)
		if err != nil {
			return nil, err
		}
		q.attrs = appendU32(nil, uapi.RDMA_NLDEV_ATTR_DEV_INDEX, index)
	}
	return ask(conn, q, decode)
}

// ask sends q and decodes the payload of every reply. If the kernel reports a dump as interrupted, ask repeats it.
func ask[T any](c *conn, q query, decode func(payload []byte) (T, error)) ([]T, error) {
	for range maxRetries {
		var list []T
		interrupted, err := c.askOnce(&q, func(b []byte) error {
			v, err := decode(b)
			list = append(list, v)
			return err
		})
		if err != nil || !interrupted {
			return list, err
		}
	}
	return nil, &Error{Op: q.op, Object: q.object, Errno: unix.EINTR, Text: errInterrupted.Error(),
		sentinel: errInterrupted}
}

func (c *conn) askOnce(q *query, f func(payload []byte) error) (interrupted bool, err error) {
	defer func() {
		if err != nil {
			err = wrap(q.op, q.object, err)
		}
	}()
	c.seq++
	// A dump ends with NLMSG_DONE, other requests with the acknowledgement.
	flags := uint16(unix.NLM_F_REQUEST | unix.NLM_F_ACK)
	if q.dump {
		flags = unix.NLM_F_REQUEST | unix.NLM_F_DUMP
	}
	if err := c.t.send(appendRequest(messageType(q.cmd), flags, c.seq, q.attrs)); err != nil {
		return false, err
	}
	for total := 0; total <= maxReply; {
		b, err := c.t.receive()
		if err != nil {
			return false, err
		}
		total += len(b) + 1
		msgs, err := parseMessages(b)
		if err != nil {
			return false, err
		}
		for _, m := range msgs {
			interrupted = interrupted || m.flags&unix.NLM_F_DUMP_INTR != 0
			if done, err := c.handle(q, m, f); done || err != nil {
				return interrupted, err
			}
		}
	}
	return false, malformed("more than %d bytes", maxReply)
}

// handle processes one message and reports whether it was the last.
func (c *conn) handle(q *query, m message, f func(payload []byte) error) (done bool, err error) {
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
				return true, &Error{Op: q.op, Object: q.object, Errno: unix.Errno(-code)}
			}
		}
		return true, nil
	case unix.NLMSG_ERROR:
		errno, msg, err := ackError(m)
		if err == nil && errno != 0 {
			err = &Error{Op: q.op, Object: q.object, Errno: errno, Text: msg}
		}
		return true, err
	case messageType(q.cmd):
		return false, f(m.payload)
	}
	return false, malformed("message type %#x, want %#x", m.typ, messageType(q.cmd))
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
	if object != "" {
		op += " " + object
	}
	return fmt.Errorf("rdma netlink: %s: %w", op, err)
}
