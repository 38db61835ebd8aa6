package fakeefa

// A part is memory of a message.
type part struct {
	mr   *mr
	addr uint64
	n    uint32
}

// local returns the memory of an SGE, or false if the key does not allow it.
func (d *Device) local(pd uint16, key uint32, addr uint64, n uint32, access uint32) (part, bool) {
	m := d.mrs[key]
	if n == 0 {
		return part{}, true
	}
	if m == nil || m.pd != pd || !m.Within(addr, uint64(n), access) {
		return part{}, false
	}
	return part{m, m.At(addr), n}, true
}

// read appends the memory to b. It returns false if the process has ended or has unmapped it.
func (p part) read(b []byte) ([]byte, bool) {
	at := len(b)
	b = append(b, make([]byte, p.n)...)
	return b, p.n == 0 || p.mr.Read(p.addr, b[at:])
}

// write stores the first bytes of b, as many as there is room for, and returns the rest.
func (p part) write(b []byte) ([]byte, bool) {
	n := min(len(b), int(p.n))
	if n > 0 && !p.mr.Write(p.addr, b[:n]) {
		return b, false
	}
	return b[n:], true
}
