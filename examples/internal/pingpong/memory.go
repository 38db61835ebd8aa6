package pingpong

import (
	"bytes"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/uverbs"
)

// A Layout is how a program uses the memory of its messages.
type Layout struct {
	Header int  // bytes that a receive puts before each message
	Filler byte // what the C program's messages are made of
	// Slots is how many messages may arrive before the first of them is looked
	// at: as much memory is needed to check them.
	Slots int
}

// Memory holds the messages.
//
// As in the C programs, a message is received into the buffer that the next one
// is sent from. Only to check messages takes more: what is compared must not
// have been there before.
type Memory struct {
	layout Layout
	size   int
	buf    []byte          // the memory of mr
	sgl    []uverbs.SGE    // the message that is sent
	recvs  []uverbs.RecvWR // a receive into each buffer
	want   []byte          // what each message must be; nil without -c
	none   []byte          // differs from want in every byte
}

// Alloc makes the memory of the messages.
func (o *Options) Alloc(pd *uverbs.PD, l Layout) (*Memory, error) {
	m := &Memory{layout: l, size: o.Size}
	buffers := 1
	if o.Check {
		buffers += l.Slots
	}
	mr, err := pd.Alloc(buffers*m.stride(), uverbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	m.sgl = []uverbs.SGE{mr.SGE(l.Header, o.Size)}
	for i := range buffers {
		sge := mr.SGE(i*m.stride(), m.stride())
		m.recvs = append(m.recvs, uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{sge}})
	}
	m.fill(mr.Bytes(), o.Check)
	return m, nil
}

// fill writes the message that is sent. With check, the first byte of each of
// its pages is zero, which is what the C server looks at, and what arrives is
// held against that.
func (m *Memory) fill(buf []byte, check bool) {
	m.buf = buf
	sent := m.message(0)
	for i := range sent {
		sent[i] = m.layout.Filler
	}
	if !check {
		return
	}
	for i := 0; i < len(sent); i += os.Getpagesize() {
		sent[i] = 0
	}
	m.want, m.none = bytes.Clone(sent), bytes.Clone(sent)
	for i := range m.none {
		m.none[i] = ^m.none[i]
	}
	for i := 1; i*m.stride() < len(buf); i++ {
		copy(m.message(i), m.none)
	}
}

func (m *Memory) stride() int { return m.layout.Header + m.size }

// message is the message in buffer i. What is sent lies in the first.
func (m *Memory) message(i int) []byte {
	return m.buf[i*m.stride():][m.layout.Header:m.stride()]
}

// Payload is the message as a work request of q names it: inline when the
// queue takes it, so that the device need not fetch it.
func (m *Memory) Payload(q *uverbs.QP) (inline []byte, sgl []uverbs.SGE) {
	if m.size <= q.Cap().MaxInline {
		return m.message(0), nil
	}
	return nil, m.sgl
}

// receives are n work requests, into the slots in turn. Their WRIDs are numbers
// of buffers.
func (m *Memory) receives(n int) []uverbs.RecvWR {
	slots := m.recvs
	if len(slots) > 1 { // the first is not received into
		slots = slots[1:]
	}
	wrs := make([]uverbs.RecvWR, n)
	for i := range wrs {
		wrs[i] = slots[i%len(slots)]
	}
	return wrs
}

// check looks at a message that has arrived, and wipes it out, so that the next
// one cannot pass by what this one left. Either end sends the same message over
// and over, and a C server sends back what it got.
func (m *Memory) check(buffer uint64) error {
	if m.want == nil {
		return nil
	}
	got := m.message(int(buffer))
	for i := range got {
		if got[i] != m.want[i] {
			hint := ""
			if m.layout.Filler != 0 {
				hint = ", or the peer was started without -c"
			}
			return fmt.Errorf("byte %d is %#02x, not %#02x: the message is damaged%s", i, got[i], m.want[i], hint)
		}
	}
	copy(got, m.none)
	return nil
}
