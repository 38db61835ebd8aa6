package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/uverbs"
)

// receiveQueue is a connection's part for messages of the peer.
type receiveQueue struct {
	slots   []memory // one for each receive
	filled  int      // how many of slots have memory
	slabs   []*uverbs.MR
	arrived []Message // a ring
	first   int       // of arrived
	count   int       // of arrived

	idleIncoming []*incoming
}

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
}

// recvBit marks receives in WRIDs.
const recvBit = 1 << 63

// initReceives prepares for up to n receives. The peer has credits for messages from the beginning.
func (c *Conn) initReceives(n int) {
	depth := c.options.Depth
	c.slots, c.arrived = make([]memory, n), make([]Message, depth)
	c.messages.receives, c.messages.granted = depth, depth
}

// allocReceives registers memory for n more receives.
func (c *Conn) allocReceives(n int) error {
	size := c.options.EagerSize
	slab := make([]byte, n*size)
	mr, err := c.cm.PD().RegMR(slab, uverbs.LocalWrite)
	if err != nil {
		return err
	}
	c.slabs = append(c.slabs, mr)
	for i := range n {
		m := &c.slots[c.filled]
		m.bytes, m.mr, m.off, m.conn, m.slot = slab[i*size:(i+1)*size:(i+1)*size], mr, i*size, c, c.filled
		c.filled++
	}
	return nil
}

func (c *Conn) freeReceives() error {
	var errs []error
	for _, mr := range c.slabs {
		errs = append(errs, mr.Close())
	}
	c.slabs = nil
	return errors.Join(errs...)
}

func (c *Conn) postReceives(slots []memory) error {
	for i := range slots {
		if err := c.postReceive(&slots[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *Conn) postReceive(m *memory) error {
	return c.cm.PostRecv(recvBit|uint64(m.slot), m.sge(len(m.bytes)))
}

// releaseSlot posts a receive again that the program has released.
func (c *Conn) releaseSlot(m *memory) {
	c.mu.Lock()
	defer c.unlock()
	c.freeReceive(m)
	c.sendControl(true)
}

// freeReceive posts the receive of a message or reply again.
func (c *Conn) freeReceive(m *memory) {
	c.repost(m)
	if m.reply {
		c.replies.owed++
	} else {
		c.owe()
	}
}

func (c *Conn) repost(m *memory) {
	if c.err != nil || c.failure != nil || c.closing {
		return
	}
	if err := c.postReceive(m); err != nil {
		c.fail(err)
	}
}

// Recv waits for a message and returns it. Goroutines that call it at the same time get one message each.
// It returns io.EOF, and nothing around it, after the last message of a peer that has closed the connection. Then
// everything that the peer has sent was received.
// It returns context.Cause(ctx) if ctx ends first; no message is lost then. If the connection has
// ended otherwise, it returns the messages that have arrived before, and then what [Conn.Err] returns. It
// returns the errors of [Conn.Alloc] if there is no memory for a long message; a later call tries again.
func (c *Conn) Recv(ctx context.Context) (Message, error) {
	c.mu.Lock()
	defer c.unlock()
	for {
		if c.receivable() {
			if m := c.arrived[c.first]; m.large == nil {
				return c.pop(), nil
			} else if m.large.done {
				m = c.pop()
				c.readAhead()
				return m, nil
			}
			if err := c.fetch(c.arrived[c.first].large); err != nil {
				return Message{}, c.opError("receive from", err)
			}
			continue
		}
		if err := c.receiveError(); err != nil {
			return Message{}, err
		}
		if err := c.step(ctx, &c.receivers, nil); err != nil {
			return Message{}, c.opError("receive from", err)
		}
	}
}

// receivable reports whether Recv can go on: a message can be returned, or the READ of one can begin.
func (c *Conn) receivable() bool {
	if c.count == 0 || c.closing {
		return false
	}
	large := c.arrived[c.first].large
	return large == nil || large.done || !large.begun() && c.err == nil && c.room() > 0
}

func (c *Conn) receiveError() error {
	switch {
	case c.closing:
		return c.opError("receive from", c.closeError())
	case c.eof && c.count == 0 && (c.err == nil || c.err == errPeerClosed):
		return io.EOF
	case c.err != nil:
		return c.opError("receive from", c.err)
	}
	return nil
}

// pop returns the first message.
func (c *Conn) pop() Message {
	m := c.arrived[c.first]
	c.arrived[c.first] = Message{}
	c.first = (c.first + 1) % len(c.arrived)
	c.count--
	return c.deliver(m)
}

// deliver makes the program the owner of a message.
func (c *Conn) deliver(m Message) Message {
	c.stats.Received++
	c.stats.ReceivedBytes += uint64(m.n)
	if large := m.large; large != nil {
		m.Buffer = c.takeMessage(large.m, m.n)
		large.m.drop()
		c.freeIncoming(large)
		if m.kind != kindReply {
			c.owe() // its receive was posted again at once
		}
		m.large = released
		return m
	}
	n := m.n
	if m.write {
		n = 0
	}
	m.Buffer = c.takeMessage(m.Buffer.m, n)
	return m
}

// handle handles completions. The caller holds c.mu.
func (c *Conn) handle(wcs []uverbs.WC) {
	for i := range wcs {
		wc := &wcs[i]
		if wc.WRID&recvBit == 0 {
			c.requestDone(wc)
		} else if err := wc.Err(); err != nil {
			c.fail(err)
		} else if err := c.receive(wc); err != nil {
			c.fail(err)
		}
	}
	c.sendControl(false)
}

// receive handles what the peer has sent.
func (c *Conn) receive(wc *uverbs.WC) error {
	slot := &c.slots[wc.WRID&^recvBit]
	if wc.Opcode == uverbs.WCRecvRDMAImm {
		return c.queue(Message{Buffer: Buffer{m: slot}, n: int(wc.ByteLen), imm: wc.Imm, write: true})
	}
	if wc.Flags&uverbs.WCWithImm == 0 {
		return fmt.Errorf("%w: a SEND without immediate data", ErrProtocol)
	}
	k, credits, number := unpackImm(wc.Imm)
	if err := c.getCredits(credits); err != nil {
		return err
	}
	return c.dispatch(k, number, slot, int(wc.ByteLen))
}

// dispatch handles a SEND of n bytes.
func (c *Conn) dispatch(k kind, number int, slot *memory, n int) error {
	if n != 0 && !k.hasBody() {
		return fmt.Errorf("%w: %d bytes in a SEND of kind %d", ErrProtocol, n, k)
	}
	switch k {
	case kindMessage:
		if number > 0 {
			if err := c.taken(number - 1); err != nil {
				return err
			}
		}
		return c.queue(Message{Buffer: Buffer{m: slot}, n: n})
	case kindCall:
		return c.queue(Message{Buffer: Buffer{m: slot}, n: n, kind: k, number: number})
	case kindReply:
		return c.replied(Message{Buffer: Buffer{m: slot}, n: n, kind: k, number: number})
	case kindOffer:
		return c.offeredBy(slot, number, n)
	case kindTaken:
		if err := c.taken(number); err != nil {
			return err
		}
	case kindCredits:
	case kindEnd:
		if err := c.endedBy(slot.bytes[:n]); err != nil {
			return err
		}
	default:
		return fmt.Errorf("%w: a SEND of kind %d", ErrProtocol, k)
	}
	c.repost(slot)
	return nil
}

// queue adds a message. There is room: each uses a credit.
func (c *Conn) queue(m Message) (err error) {
	if err := c.messages.use(); err != nil {
		return err
	}
	m.c = c
	if m.large == nil {
		m.Buffer.m.reply = false
	}
	if m.kind == kindCall {
		if m.serial, err = c.ask(m.number); err != nil {
			return err
		}
	}
	c.arrived[(c.first+c.count)%len(c.arrived)] = m
	c.count++
	return nil
}

// An incoming is a message that the peer has offered. Its fields belong to c.mu.
type incoming struct {
	offer   offer
	number  int     // of the offer
	m       *memory // into which it is read
	grows   bool    // a call registers memory for it
	reading bool
	done    bool
	dropped bool // nobody waits for it
	call    *call
}

// begun reports whether a READ of the message is posted, or will be.
func (in *incoming) begun() bool { return in.grows || in.reading || in.done }

var errNotOffered = fmt.Errorf("%w: it has taken what was not offered", ErrProtocol)

// offeredBy handles an offer of the peer.
func (c *Conn) offeredBy(slot *memory, number, n int) error {
	o, err := parseOffer(slot.bytes[:n], c.options.MaxMessage)
	if err != nil {
		return err
	}
	f := c.flow(o.kind)
	if f.offers >= min(c.options.Offers, c.remote.offers) {
		return fmt.Errorf("%w: more than %d offers", ErrProtocol, f.offers)
	}
	f.offers++
	in := c.newIncoming()
	in.offer, in.number = o, number
	m := Message{c: c, n: int(o.length), kind: o.kind, number: o.number, large: in}
	c.repost(slot)
	if o.kind == kindReply {
		return c.replied(m)
	}
	if err := c.queue(m); err != nil {
		return err
	}
	c.prefetch(in)
	return nil
}

func (c *Conn) newIncoming() *incoming {
	if n := len(c.idleIncoming); n > 0 {
		in := c.idleIncoming[n-1]
		c.idleIncoming = c.idleIncoming[:n-1]
		*in = incoming{}
		return in
	}
	return &incoming{}
}

func (c *Conn) freeIncoming(in *incoming) { c.idleIncoming = append(c.idleIncoming, in) }

// prefetch begins to read a message before the program asks for it, if memory is at hand.
func (c *Conn) prefetch(in *incoming) {
	if c.err != nil || c.room() <= 0 {
		return
	}
	if m := c.pool.ready(int(in.offer.length)); m != nil {
		// An error is that of Recv.
		_ = c.readInto(in, m)
	}
}

// readAhead begins to read the next message while the program uses the one that Recv returns. The pool may grow for it,
// because otherwise it has memory for one message only.
func (c *Conn) readAhead() {
	if c.count == 0 || c.closing || c.err != nil || c.room() <= 0 {
		return
	}
	in := c.arrived[c.first].large
	switch {
	case in == nil || in.begun():
	case in.offer.length > maxAhead:
		c.prefetch(in)
	default:
		// An error is that of Recv, which tries again.
		_ = c.fetch(in)
	}
}

// maxAhead is how long a message may be for which the pool grows before the program asks for it.
const maxAhead = 4 << 20

// fetch begins to read an offered message. It registers memory if there is none. The caller holds c.mu, which fetch
// releases meanwhile, and has checked that there is room. If that changes, fetch does nothing.
func (c *Conn) fetch(in *incoming) error {
	n := int(in.offer.length)
	m := c.pool.ready(n)
	if m == nil {
		var err error
		in.grows = true
		c.unlock()
		m, err = c.pool.get(n)
		c.mu.Lock()
		in.grows = false
		if errors.Is(err, uverbs.ErrDeviceGone) {
			return c.refused(err)
		}
		if err != nil {
			return err // the peer, which may have closed the connection, waits until the message has been read
		}
	}
	if c.err != nil || c.closing || c.room() <= 0 {
		c.pool.put(m)
		return nil
	}
	return c.readInto(in, m)
}

// readInto posts the READ of an offered message.
func (c *Conn) readInto(in *incoming, m *memory) error {
	m.hold() // until deliver or fetched
	m.hold() // by the request
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.ReadSGE(seq, flags, in.offer.addr, in.offer.key, m.sge(int(in.offer.length)))
	if err := b.Submit(); err != nil {
		m.drop()
		m.drop()
		return c.refused(err)
	}
	in.m, in.reading = m, true
	c.posted(request{m: m, offer: in}, flags)
	return nil
}

// fetched handles the completion of the READ of an offered message.
func (c *Conn) fetched(in *incoming, err error) {
	in.reading = false
	if err != nil {
		in.m.drop()
		in.m = nil
		return
	}
	in.done = true
	c.flow(in.offer.kind).offers--
	c.control.taken = append(c.control.taken, in.number)
	if in.call != nil {
		c.wake(in.call.waiter)
	}
	if in.dropped {
		in.m.drop()
		c.freeIncoming(in)
	}
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

// Release gives the memory of the message back, so that the peer may send another one. Further calls do nothing.
func (m Message) Release() {
	m.Buffer.Release()
	if m.large == released {
		m.c.mu.Lock()
		m.c.sendControl(true)
		m.c.unlock()
	}
}

// released marks a long message that the program has got.
var released = new(incoming)

// Copy returns the bytes of the message in memory of their own, and releases the message.
func (m Message) Copy() []byte {
	b := append([]byte(nil), m.Bytes()...)
	m.Release()
	return b
}
