package engine

import "encoding/binary"

// Memory is the host's memory by the addresses that devices use.
type Memory interface {
	// View returns n bytes at addr, which are good until the loop's current step
	// ends. An error: they are not there, or not in one piece.
	View(addr uint64, n int) ([]byte, error)
}

// A Buffer is a queue in the host's memory: pages of one size, and where in the
// first the queue begins.
type Buffer struct {
	PageShift uint8 // log2 of the pages' size
	Offset    uint64
	Pages     []uint64
}

// holds reports whether n bytes are within the buffer.
func (b *Buffer) holds(n uint64) bool {
	return b.PageShift >= 6 && b.PageShift < 40 && b.Offset < 1<<40 &&
		(b.Offset+n+1<<b.PageShift-1)>>b.PageShift <= uint64(len(b.Pages))
}

// KeepPages takes a list of n pages into what all of the host's lists may have. It
// is for queues that are not the HCA's: those of events.
func (h *HCA) KeepPages(n int) error {
	if err := h.roomFor(8 * n); err != nil {
		return err
	}
	h.foreign += 8 * n
	return nil
}

// DropPages gives back what KeepPages has taken.
func (h *HCA) DropPages(n int) { h.foreign -= 8 * n }

// roomFor reports whether the host's lists may have n bytes more.
func (h *HCA) roomFor(n int) error {
	if n > h.limits.Translations-h.translations-h.foreign {
		return failf(ErrLimit, "%d bytes of lists", h.limits.Translations)
	}
	return nil
}

func (h *HCA) keep(b *Buffer) error {
	if err := h.roomFor(8 * len(b.Pages)); err != nil {
		return err
	}
	h.translations += 8 * len(b.Pages)
	return nil
}

func (h *HCA) drop(b *Buffer) { h.translations -= 8 * len(b.Pages) }

// each calls f with the pieces of n bytes at off, in order, until one fails.
func (h *HCA) each(b *Buffer, off uint64, n int, f func(p []byte)) error {
	for at := b.Offset + off; n > 0; {
		page, in := at>>b.PageShift, at&(1<<b.PageShift-1)
		if page >= uint64(len(b.Pages)) {
			return failf(ErrParam, "%d bytes past the end of a queue's buffer", n)
		}
		part := min(uint64(n), 1<<b.PageShift-in)
		p, err := h.config.Memory.View(b.Pages[page]+in, int(part))
		if err != nil {
			return err
		}
		f(p)
		at += part
		n -= int(part)
	}
	return nil
}

// load reads a part of a queue's buffer.
func (h *HCA) load(b *Buffer, off uint64, p []byte) error {
	return h.each(b, off, len(p), func(src []byte) {
		copy(p, src)
		p = p[len(src):]
	})
}

// record reads a word of a doorbell record.
func (h *HCA) record(addr uint64) (uint32, error) {
	p, err := h.config.Memory.View(addr, 4)
	if err != nil {
		return 0, err
	}
	return loadBE32(p), nil
}

// ring reads a part of a ring of size bytes at base in a buffer; it may wrap.
func (h *HCA) ring(b *Buffer, base, size, off uint64, p []byte) error {
	off &= size - 1
	first := min(uint64(len(p)), size-off)
	if err := h.load(b, base+off, p[:first]); err != nil {
		return err
	}
	if first == uint64(len(p)) {
		return nil
	}
	return h.load(b, base, p[first:])
}

func be16(b []byte) uint16 { return binary.BigEndian.Uint16(b) }
func be32(b []byte) uint32 { return binary.BigEndian.Uint32(b) }
func be64(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
