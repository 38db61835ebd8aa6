package vfiouser

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A Host is the machine that a device is plugged into, for as long as it is.
// Its methods are for the inside of Server.Run.
type Host struct {
	memory memory
	irqs   [kinds][]int // eventfds by vector; -1: the client does not listen
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

// View is the machine's memory from a DMA address on. It is good until the
// current step (Server.Run) ends: the next message may take the memory away.
// The guest uses it at the same time. ErrNotMapped: some of it is not there, or
// is for reading only, or it reaches over the edge of two pieces of memory.
func (h *Host) View(addr uint64, n int) ([]byte, error) { return h.memory.view(addr, n) }

// Interrupt raises an interrupt. ErrNotEnabled: the guest has not enabled it,
// and nothing keeps it for later.
func (h *Host) Interrupt(kind IRQ, vector int) error {
	if kind < 0 || kind >= kinds || vector < 0 || vector >= len(h.irqs[kind]) || h.irqs[kind][vector] < 0 {
		return &Error{Kind: ErrNotEnabled, Detail: fmt.Sprintf("vector %d of kind %d", vector, kind)}
	}
	return signal(h.irqs[kind][vector])
}

// signal adds one to an eventfd. One that is full is signalled already.
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

// listen makes an eventfd the target of a vector. -1 stands for none.
func (h *Host) listen(kind IRQ, vector, fd int) error {
	old := h.irqs[kind][vector]
	h.irqs[kind][vector] = fd
	if old < 0 {
		return nil
	}
	return unix.Close(old)
}

// close gives memory and interrupts back.
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
