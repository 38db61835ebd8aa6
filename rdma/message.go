package rdma

import "fmt"

// A Message is one that has arrived. Its bytes are those of its [Buffer], and it must be released: the
// peer may send another one for it.
type Message struct {
	Buffer
	c      *Conn
	n      int
	kind   kind
	number int    // of a call
	serial uint32 // of a call
	imm    uint32
	write  bool // a WRITE with immediate
	large  *incoming
	terms  *terms // of a reply with metadata, or nil
}

// Imm returns the immediate data of a WRITE by [Conn.WriteImm]. Such a message has no bytes, and Len returns
// the length of the WRITE. ok is false for other messages.
func (m Message) Imm() (imm uint32, ok bool) { return m.imm, m.write }

// Bytes returns the message, or nil after Release. It must not be used after Release.
func (m Message) Bytes() []byte {
	if m.write {
		return nil
	}
	return m.Buffer.Bytes()
}

// Len returns the length of the message in bytes.
func (m Message) Len() int { return m.n }

// SetLen is not for messages: it returns [ErrBounds].
func (m Message) SetLen(int) error {
	return fmt.Errorf("%w: the length of a message is fixed: use a buffer of Conn.Alloc", ErrBounds)
}

// Release releases the memory of the message, so that the peer may send another one. Further calls do nothing.
func (m Message) Release() {
	m.Buffer.Release()
	m.freed()
}

// releaseRest is Release for a message that the program may have released or sent.
func (m Message) releaseRest() {
	if m.disown() {
		m.freed()
	}
}

// freed has the credits for a long message sent that was released.
func (m Message) freed() {
	if m.large == released {
		m.c.mu.Lock()
		m.c.sendControl(true)
		m.c.unlock()
	}
}

// released marks a long message that the program has got.
var released = new(incoming)

// Copy returns the bytes of the message in separate memory, and releases the message.
func (m Message) Copy() []byte {
	b := append([]byte(nil), m.Bytes()...)
	m.Release()
	return b
}
