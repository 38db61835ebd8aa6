package pingpong

import (
	"bytes"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/uverbs"
)

// A Layout describes how a program uses the memory of its messages.
type Layout struct {
	Header int  // bytes before each received message
	Filler byte // the byte of which the C program's messages consist
	// Slots is the number of messages that may arrive before the first of them
	// is checked. Each needs its own buffer.
	Slots int
}

// Memory holds the messages.
//
// As in the C programs, messages are sent from and received into one buffer. With -c there is a buffer for each
// receive, so that a message cannot pass the check because of earlier contents of the buffer.
type Memory struct {
	layout Layout
	size   int
	buf    []byte          // the memory of mr
	sgl    []uverbs.SGE    // the message to send
	recvs  []uverbs.RecvWR // a receive into each buffer
	want   []byte          // the expected message; nil without -c
	none   []byte          // differs from want in every byte
}

// Alloc allocates and registers the memory of the messages.
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

// fill writes the message to send into the first buffer. If check is set, the
// first byte of each page is zero, which the C server checks.
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

// message returns the message in buffer i. Buffer 0 has the message to send.
func (m *Memory) message(i int) []byte {
	return m.buf[i*m.stride():][m.layout.Header:m.stride()]
}

// Payload returns the message to send for a work request of q: inline if it fits,
// so that the device need not fetch it, else as an SGE.
func (m *Memory) Payload(q *uverbs.QP) (inline []byte, sgl []uverbs.SGE) {
	if m.size <= q.Cap().MaxInline {
		return m.message(0), nil
	}
	return nil, m.sgl
}

// receives returns n work requests that use the buffers in turn. Their WRIDs are
// buffer numbers.
func (m *Memory) receives(n int) []uverbs.RecvWR {
	slots := m.recvs
	if len(slots) > 1 { // the first is only for sending
		slots = slots[1:]
	}
	wrs := make([]uverbs.RecvWR, n)
	for i := range wrs {
		wrs[i] = slots[i%len(slots)]
	}
	return wrs
}

// check compares a received message with the expected one, and overwrites it. All
// messages are the same, because a C server sends back what it received. Without
// overwriting, a message that was never written would pass the check.
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
			return fmt.Errorf("byte %d is %#02x, not %#02x: the message is corrupt%s", i, got[i], m.want[i], hint)
		}
	}
	copy(got, m.none)
	return nil
}
