package engine

import "encoding/binary"

// Memory is the host's memory, by DMA address.
type Memory interface {
	// View returns the n bytes at addr. They are valid until the loop's current
	// step ends. It returns an error if the memory does not exist or is not
	// contiguous.
	View(addr uint64, n int) ([]byte, error)
}

// A Buffer is a queue in the host's memory: pages of one size, and the queue's
// offset in the first.
type Buffer struct {
	PageShift uint8 // log2 of the page size
	Offset    uint64
	Pages     []uint64
}

// holds reports whether n bytes are within the buffer.
func (b *Buffer) holds(n uint64) bool {
	return b.PageShift >= 6 && b.PageShift < 40 && b.Offset < 1<<40 &&
		(b.Offset+n+1<<b.PageShift-1)>>b.PageShift <= uint64(len(b.Pages))
}

// ReservePages counts a list of n pages against the limit of all lists. It is
// for queues that are not the HCA's: event queues.
func (h *HCA) ReservePages(n int) error {
	if err := h.roomFor(8 * n); err != nil {
		return err
	}
	h.foreign += 8 * n
	return nil
}

// ReleasePages undoes ReservePages.
func (h *HCA) ReleasePages(n int) { h.foreign -= 8 * n }

// roomFor checks that the host's lists may have n more bytes.
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

// each calls f with the pieces of the n bytes at off, in order, until one
// fails.
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

// load reads from a queue's buffer.
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

// ring reads from a ring of size bytes at base in a buffer. The bytes may wrap.
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
