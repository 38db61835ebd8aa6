package xz

import "fmt"

// The LZMA state machine: names and numbers follow the LZMA specification of
// the 7-Zip SDK (lzma-specification.txt) and the xz file format.
const (
	numStates     = 12
	posStatesMax  = 16
	endPosModel   = 14
	fullDistances = 128
	alignBits     = 4
	matchMin      = 2
	probInit      = 1 << 10
)

type lengthProbs struct {
	choice, choice2 uint16
	low, mid        [posStatesMax][8]uint16
	high            [256]uint16
}

type probs struct {
	match      [numStates][posStatesMax]uint16
	rep        [numStates]uint16
	rep0       [numStates]uint16
	rep1       [numStates]uint16
	rep2       [numStates]uint16
	rep0Long   [numStates][posStatesMax]uint16
	distSlot   [4][64]uint16
	distSpec   [fullDistances - endPosModel + 1]uint16
	distAlign  [1 << alignBits]uint16
	matchLen   lengthProbs
	repLen     lengthProbs
	literal    []uint16
	lc, lp, pb uint
}

// A decoder has the state that is kept between LZMA2 chunks.
type decoder struct {
	probs
	rc    rangeDecoder
	out   []byte
	dict  int // start of the dictionary in out
	state int
	reps  [4]uint32
}

// decodeLZMA2 appends the data of the chunks at the start of in to out, and
// returns their length.
func decodeLZMA2(in []byte, out *[]byte) (int, error) {
	d := &decoder{out: *out}
	needDict, needProps, pos := true, true, 0
	for {
		if pos >= len(in) {
			return 0, fmt.Errorf("%w: truncated", ErrFormat)
		}
		control := in[pos]
		if control == 0 {
			*out = d.out
			return pos + 1, nil
		}
		if control == 1 || control >= 0xe0 {
			needDict = false
			d.dict = len(d.out)
		}
		if needDict || (control > 2 && control < 0x80) {
			return 0, fmt.Errorf("%w: LZMA2 control byte %#x", ErrFormat, control)
		}
		if control >= 0xc0 {
			needProps = false
		}
		if control >= 0x80 && needProps {
			return 0, fmt.Errorf("%w: LZMA2 chunk without properties", ErrFormat)
		}
		used, err := d.chunk(control, in[pos:])
		if err != nil {
			return 0, err
		}
		pos += used
	}
}

// chunk decodes one chunk, and returns its length including the header.
func (d *decoder) chunk(control byte, in []byte) (int, error) {
	head := 3
	if control >= 0xc0 {
		head = 6
	} else if control >= 0x80 {
		head = 5
	}
	if len(in) < head {
		return 0, fmt.Errorf("%w: truncated", ErrFormat)
	}
	size := int(in[1])<<8 | int(in[2])
	if control < 0x80 {
		size++
		if len(in) < head+size || len(d.out)+size > maxSize {
			return 0, fmt.Errorf("%w: truncated", ErrFormat)
		}
		d.out = append(d.out, in[head:head+size]...)
		return head + size, nil
	}
	size += int(control&0x1f)<<16 + 1
	packed := int(in[3])<<8 | int(in[4]) + 1
	if len(in) < head+packed || len(d.out)+size > maxSize {
		return 0, fmt.Errorf("%w: truncated", ErrFormat)
	}
	if control >= 0xc0 {
		if err := d.setProps(in[5]); err != nil {
			return 0, err
		}
	}
	if control >= 0xa0 {
		d.reset()
	}
	if err := d.rc.init(in[head : head+packed]); err != nil {
		return 0, err
	}
	return head + packed, d.decode(len(d.out) + size)
}

func (d *decoder) setProps(b byte) error {
	if b >= 9*5*5 {
		return fmt.Errorf("%w: LZMA properties", ErrFormat)
	}
	d.lc, d.lp, d.pb = uint(b%9), uint(b/9%5), uint(b/45)
	if d.lc+d.lp > 4 {
		return fmt.Errorf("%w: LZMA properties", ErrFormat)
	}
	return nil
}

// reset sets all probabilities to one half.
func (d *decoder) reset() {
	d.state, d.reps = 0, [4]uint32{}
	p := probs{lc: d.lc, lp: d.lp, pb: d.pb, literal: make([]uint16, 0x300<<(d.lc+d.lp))}
	fill := func(s []uint16) {
		for i := range s {
			s[i] = probInit
		}
	}
	for i := range numStates {
		fill(p.match[i][:])
		fill(p.rep0Long[i][:])
	}
	for _, s := range [][]uint16{p.rep[:], p.rep0[:], p.rep1[:], p.rep2[:], p.distSpec[:], p.distAlign[:], p.literal} {
		fill(s)
	}
	for i := range p.distSlot {
		fill(p.distSlot[i][:])
	}
	for _, l := range []*lengthProbs{&p.matchLen, &p.repLen} {
		l.choice, l.choice2 = probInit, probInit
		for i := range posStatesMax {
			fill(l.low[i][:])
			fill(l.mid[i][:])
		}
		fill(l.high[:])
	}
	d.probs = p
}

// decode decodes until out has length end.
func (d *decoder) decode(end int) error {
	for len(d.out) < end {
		pos := (len(d.out) - d.dict) & (1<<d.pb - 1)
		if d.rc.bit(&d.match[d.state][pos]) == 0 {
			if err := d.decodeLiteral(); err != nil {
				return err
			}
			continue
		}
		length, err := d.decodeMatch(pos)
		if err != nil {
			return err
		}
		if length == 0 {
			continue // a short repetition: one byte, already there
		}
		from := len(d.out) - int(d.reps[0]) - 1
		if from < d.dict || len(d.out)+length > end {
			return fmt.Errorf("%w: match", ErrFormat)
		}
		for i := range length { // may overlap the appended bytes
			d.out = append(d.out, d.out[from+i])
		}
	}
	if d.rc.failed {
		return fmt.Errorf("%w: truncated", ErrFormat)
	}
	return nil
}

// decodeMatch decodes a match or repetition and returns its length; the
// distance is then reps[0].
func (d *decoder) decodeMatch(pos int) (int, error) {
	s := d.state
	if d.rc.bit(&d.rep[s]) == 0 {
		d.reps[3], d.reps[2], d.reps[1] = d.reps[2], d.reps[1], d.reps[0]
		length := d.rc.length(&d.matchLen, pos)
		d.reps[0] = d.distance(length)
		d.state = after(s, 7, 10)
		return length + matchMin, nil
	}
	if d.rc.bit(&d.rep0[s]) == 0 {
		if d.rc.bit(&d.rep0Long[s][pos]) == 0 {
			d.state = after(s, 9, 11)
			from := len(d.out) - int(d.reps[0]) - 1
			if from < d.dict {
				return 0, fmt.Errorf("%w: repetition", ErrFormat)
			}
			d.out = append(d.out, d.out[from])
			return 0, nil
		}
	} else {
		i := 1
		if d.rc.bit(&d.rep1[s]) != 0 {
			i = 2 + int(d.rc.bit(&d.rep2[s]))
		}
		dist := d.reps[i]
		copy(d.reps[1:i+1], d.reps[:i])
		d.reps[0] = dist
	}
	d.state = after(s, 8, 11)
	return d.rc.length(&d.repLen, pos) + matchMin, nil
}

// after returns the next state, depending on whether a literal came before.
func after(state, literal, other int) int {
	if state < 7 {
		return literal
	}
	return other
}

func (d *decoder) decodeLiteral() error {
	pos, prev := len(d.out)-d.dict, byte(0)
	if pos > 0 {
		prev = d.out[len(d.out)-1]
	}
	ctx := (pos&(1<<d.lp-1))<<d.lc | int(prev>>(8-d.lc))
	p := d.literal[0x300*ctx:][:0x300]
	symbol := uint32(1)
	if d.state >= 7 {
		from := len(d.out) - int(d.reps[0]) - 1
		if from < d.dict {
			return fmt.Errorf("%w: literal", ErrFormat)
		}
		matched := uint32(d.out[from])
		for symbol < 0x100 {
			want := matched >> 7 & 1
			matched <<= 1
			bit := d.rc.bit(&p[(1+want)<<8+symbol])
			symbol = symbol<<1 | bit
			if bit != want {
				break
			}
		}
	}
	for symbol < 0x100 {
		symbol = symbol<<1 | d.rc.bit(&p[symbol])
	}
	d.out = append(d.out, byte(symbol))
	switch {
	case d.state < 4:
		d.state = 0
	case d.state < 10:
		d.state -= 3
	default:
		d.state -= 6
	}
	return nil
}

func (d *decoder) distance(length int) uint32 {
	slot := d.rc.tree(d.distSlot[min(length, 3)][:], 6)
	if slot < 4 {
		return slot
	}
	bits := int(slot>>1) - 1
	dist := (2 | slot&1) << bits
	if slot < endPosModel {
		return dist + d.rc.reverse(d.distSpec[dist-slot:], bits)
	}
	dist += d.rc.direct(bits-alignBits) << alignBits
	return dist + d.rc.reverse(d.distAlign[:], alignBits)
}
