package vfiouser

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The flags of DEVICE_GET_IRQ_INFO and DEVICE_SET_IRQS.
const (
	irqEventFD = 1

	dataNone    = 1 << 0
	dataBool    = 1 << 1
	dataEventFD = 1 << 2
	actTrigger  = 1 << 5
)

func (c *conn) irqInfo() error {
	index := order.Uint32(c.body[8:])
	if index >= uint32(kinds) {
		return refused(unix.EINVAL, "interrupts of kind %d", index)
	}
	if err := c.argsz(16); err != nil {
		return err
	}
	n, flags := len(c.host.irqs[index]), uint32(0)
	if n > 0 {
		flags = irqEventFD
	}
	c.reply = append32(c.reply, 16, flags, index, uint32(n))
	return nil
}

func (c *conn) setIRQs() error {
	b := c.body
	flags, index, start, count := order.Uint32(b[4:]), order.Uint32(b[8:]), order.Uint32(b[12:]), order.Uint32(b[16:])
	if index >= uint32(kinds) {
		return refused(unix.EINVAL, "interrupts of kind %d", index)
	}
	if n := uint64(len(c.host.irqs[index])); uint64(start)+uint64(count) > n {
		return refused(unix.EINVAL, "vectors %d to %d of %d", start, uint64(start)+uint64(count), n)
	}
	if n := len(c.stream.fds); n > 0 && flags&dataEventFD == 0 {
		return refused(unix.EINVAL, "%d descriptors, want none", n)
	}
	kind, data := IRQ(index), b[20:]
	switch flags {
	case dataEventFD | actTrigger:
		return c.listenTo(kind, int(start), int(count))
	case dataNone | actTrigger:
		if count == 0 && start == 0 {
			return c.ignore(kind, 0, len(c.host.irqs[kind]))
		}
		return c.trigger(kind, int(start), int(count), nil)
	case dataBool | actTrigger:
		if len(data) != int(count) {
			return refused(unix.EINVAL, "%d bytes for %d vectors", len(data), count)
		}
		return c.trigger(kind, int(start), int(count), data)
	}
	return refused(unix.ENOTSUP, "flags %#x", flags)
}

// listenTo sets the eventfds of vectors to the message's descriptors, or to
// none if it has no descriptors.
func (c *conn) listenTo(kind IRQ, start, count int) error {
	n := len(c.stream.fds)
	if n == 0 {
		return c.ignore(kind, start, count)
	}
	if n != count {
		return refused(unix.EINVAL, "%d descriptors for %d vectors", n, count)
	}
	for _, fd := range c.stream.fds { // Interrupt must never block
		if err := unix.SetNonblock(fd, true); err != nil {
			return &Error{Kind: ErrRefused, Errno: unix.EINVAL, Detail: "a descriptor", Err: err}
		}
	}
	var err error
	for i := range count {
		err = errors.Join(err, c.host.listen(kind, start+i, c.stream.descriptor(i)))
	}
	return err
}

// ignore removes the eventfds of vectors.
func (c *conn) ignore(kind IRQ, start, count int) error {
	var err error
	for i := range count {
		err = errors.Join(err, c.host.listen(kind, start+i, -1))
	}
	return err
}

// trigger raises interrupts on behalf of the device: all, or the chosen ones.
func (c *conn) trigger(kind IRQ, start, count int, chosen []byte) error {
	for i := range count {
		if chosen != nil && chosen[i] == 0 {
			continue
		}
		if err := c.host.Interrupt(kind, start+i); err != nil {
			return &Error{Kind: ErrRefused, Errno: unix.EINVAL, Err: err}
		}
	}
	return nil
}
