package fakeefa

import "github.com/goverbs/goverbs/internal/race"

// A part is memory of a message.
type part struct {
	mr   *mr
	addr uint64
	n    uint32
}

// within reports whether n bytes at an address are in the region, and the region has the rights.
func (m *mr) within(addr, n uint64, access uint32) bool {
	off := addr - m.iova
	return off <= m.length && n <= m.length-off && m.access&access == access
}

// local returns the memory of an SGE, or false if the key does not allow it.
func (d *Device) local(pd uint16, key uint32, addr uint64, n uint32, access uint32) (part, bool) {
	m := d.mrs[key]
	if n == 0 {
		return part{}, true
	}
	if m == nil || m.pd != pd || !m.within(addr, uint64(n), access) {
		return part{}, false
	}
	return part{m, addr - m.iova + m.start, n}, true
}

// read appends the memory to b. It returns false if the process has ended or has unmapped it.
func (p part) read(b []byte) ([]byte, bool) {
	at := len(b)
	b = append(b, make([]byte, p.n)...)
	if p.n == 0 {
		return b, true
	}
	if p.mr.kernel.process == nil {
		race.Copy(b[at:], view(p.addr, int(p.n)))
		return b, true
	}
	from, err := p.mr.kernel.process.View(p.addr, int(p.n))
	copy(b[at:], from)
	return b, err == nil
}

// write stores the first bytes of b, as many as there is room for, and returns the rest.
func (p part) write(b []byte) ([]byte, bool) {
	n := min(len(b), int(p.n))
	if n == 0 {
		return b, true
	}
	if p.mr.kernel.process == nil {
		race.Copy(view(p.addr, n), b[:n])
		return b[n:], true
	}
	to, err := p.mr.kernel.process.View(p.addr, n)
	if err != nil {
		return b, false
	}
	copy(to, b[:n])
	p.mr.kernel.process.Flush()
	return b[n:], true
}
