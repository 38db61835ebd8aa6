package vfiouser

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A Host is the machine to which a device is connected. Its methods must be
// called inside of Server.Run.
type Host struct {
	memory memory
	irqs   [kinds][]int // eventfds by vector; -1 if not enabled
}

func newHost(d Device) (*Host, error) {
	h := &Host{}
	for kind := range kinds {
		n := d.IRQs(kind)
		if n < 0 || n > MaxIRQs || n > 0 && kind == INTx {
			return nil, deviceError(fmt.Errorf("%d interrupts of kind %d", n, kind))
		}
		h.irqs[kind] = make([]int, n)
		for i := range h.irqs[kind] {
			h.irqs[kind][i] = -1
		}
	}
	return h, nil
}

// View returns the machine's memory at a DMA address. It is valid until the
// current step (Server.Run) ends: the next message may unmap it. The guest may
// access it concurrently. It returns ErrNotMapped if the memory is not mapped
// completely by one read-write mapping.
func (h *Host) View(addr uint64, n int) ([]byte, error) { return h.memory.view(addr, n) }

// Interrupt raises an interrupt. It returns ErrNotEnabled if the guest has not
// enabled it; the interrupt is then lost.
func (h *Host) Interrupt(kind IRQ, vector int) error {
	if kind < 0 || kind >= kinds || vector < 0 || vector >= len(h.irqs[kind]) || h.irqs[kind][vector] < 0 {
		return &Error{Kind: ErrNotEnabled, Detail: fmt.Sprintf("vector %d of kind %d", vector, kind)}
	}
	return signal(h.irqs[kind][vector])
}

// signal adds one to an eventfd. If that would overflow, it is signalled
// already.
func signal(fd int) error {
	one := [8]byte{1}
	for {
		_, err := unix.Write(fd, one[:])
		switch err {
		case nil, unix.EAGAIN:
			return nil
		case unix.EINTR:
			continue
		}
		return &Error{Kind: ErrNotEnabled, Detail: "writing to the client's eventfd", Err: err}
	}
}

// listen sets the eventfd of a vector. -1 means none.
func (h *Host) listen(kind IRQ, vector, fd int) error {
	old := h.irqs[kind][vector]
	h.irqs[kind][vector] = fd
	if old < 0 {
		return nil
	}
	return unix.Close(old)
}

// close releases memory and interrupts.
func (h *Host) close() error {
	err := h.memory.close()
	for kind := range kinds {
		for i := range h.irqs[kind] {
			if e := h.listen(kind, i, -1); err == nil {
				err = e
			}
		}
	}
	return err
}
