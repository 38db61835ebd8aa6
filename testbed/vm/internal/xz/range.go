package xz

import (
	"encoding/binary"
	"fmt"
)

// rangeDecoder is LZMA's range decoder over one chunk.
type rangeDecoder struct {
	in     []byte
	code   uint32
	width  uint32
	failed bool // read past the end
}

func (r *rangeDecoder) init(in []byte) error {
	if len(in) < 5 || in[0] != 0 {
		return fmt.Errorf("%w: range decoder", ErrFormat)
	}
	*r = rangeDecoder{in: in[5:], code: binary.BigEndian.Uint32(in[1:]), width: 1<<32 - 1}
	return nil
}

func (r *rangeDecoder) normalize() {
	if r.width >= 1<<24 {
		return
	}
	r.width <<= 8
	r.code <<= 8
	if len(r.in) == 0 {
		r.failed = true
		return
	}
	r.code |= uint32(r.in[0])
	r.in = r.in[1:]
}

// bit decodes one bit with an adaptive probability.
func (r *rangeDecoder) bit(prob *uint16) uint32 {
	r.normalize()
	p := uint32(*prob)
	bound := (r.width >> 11) * p
	if r.code < bound {
		r.width = bound
		*prob = uint16(p + (1<<11-p)>>5)
		return 0
	}
	r.width -= bound
	r.code -= bound
	*prob = uint16(p - p>>5)
	return 1
}

// tree decodes bits, most significant first.
func (r *rangeDecoder) tree(p []uint16, bits int) uint32 {
	m := uint32(1)
	for range bits {
		m = m<<1 | r.bit(&p[m])
	}
	return m - 1<<bits
}

// reverse decodes bits, least significant first.
func (r *rangeDecoder) reverse(p []uint16, bits int) uint32 {
	m, v := uint32(1), uint32(0)
	for i := range bits {
		b := r.bit(&p[m])
		m = m<<1 | b
		v |= b << i
	}
	return v
}

// direct decodes bits with equal probabilities.
func (r *rangeDecoder) direct(bits int) uint32 {
	v := uint32(0)
	for range bits {
		r.normalize()
		r.width >>= 1
		b := uint32(0)
		if r.code >= r.width {
			r.code -= r.width
			b = 1
		}
		v = v<<1 | b
	}
	return v
}

// length decodes the length of a match, less the minimum.
func (r *rangeDecoder) length(p *lengthProbs, pos int) int {
	if r.bit(&p.choice) == 0 {
		return int(r.tree(p.low[pos][:], 3))
	}
	if r.bit(&p.choice2) == 0 {
		return 8 + int(r.tree(p.mid[pos][:], 3))
	}
	return 16 + int(r.tree(p.high[:], 8))
}
