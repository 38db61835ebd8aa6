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
	if err := c.account.tryFixed(int64(n * size)); err != nil {
		return err
	}
	slab := make([]byte, n*size)
	var mr *uverbs.MR
	err := c.pool.retry(func() (err error) {
		mr, err = c.cm.PD().RegMR(slab, uverbs.LocalWrite)
		return err
	})
	if err != nil {
		c.account.untry(int64(n * size))
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
//
// A long message waits as long as it exceeds ListenOptions.MaxMemory or MaxMemoryPerPeer with other
// messages that the program has not released. After 30 seconds, Recv returns [ErrMemoryLimit]; a later call tries
// again.
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
			if err := c.fetch(ctx, c.arrived[c.first].large); err != nil {
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
	c.heard = true
	slot := &c.slots[wc.WRID&^recvBit]
	if wc.Opcode == uverbs.WCRecvRDMAImm {
		if c.eof {
			return fmt.Errorf("%w: a WRITE with immediate data after the end", ErrProtocol)
		}
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
	switch {
	case n != 0 && !k.hasBody():
		return fmt.Errorf("%w: %d bytes in a SEND of kind %d", ErrProtocol, n, k)
	case c.eof && (k <= kindOffer || k == kindCancel):
		return fmt.Errorf("%w: a SEND of kind %d after the end", ErrProtocol, k)
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
		if err := c.cancels.get(number); err != nil {
			return err
		}
	case kindCancel:
		if err := c.canceledBy(number); err != nil {
			return err
		}
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
	proofs  int     // how many ends of it could be read: see prove
	grows   bool    // a call waits for memory for it, or registers it
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

// dropArrived drops the memory of messages and replies that were read and not received, when no more are.
func (c *Conn) dropArrived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	drop := func(m *Message) {
		switch large := m.large; {
		case large != nil && large.done:
			large.m.drop()
		case large == nil && m.Buffer.m != nil && m.Buffer.m.pool != nil: // see moveReply
			m.Buffer.m.pool.put(m.Buffer.m)
		}
		*m = Message{}
	}
	for ; c.count > 0; c.count-- {
		drop(&c.arrived[c.first])
		c.first = (c.first + 1) % len(c.arrived)
	}
	for _, k := range c.calls.all {
		if k.waiting && k.replied {
			drop(&k.m)
			k.replied = false
		}
	}
}

func (c *Conn) freeIncoming(in *incoming) { c.idleIncoming = append(c.idleIncoming, in) }

// prefetch begins to read a message before the program asks for it, if memory is at hand.
func (c *Conn) prefetch(in *incoming) {
	if c.err == nil && c.room() > 0 {
		// An error is that of Recv.
		_, _ = c.readAtOnce(in)
	}
}

// readAhead begins to read the next message while the program uses the one that Recv returns. The pool may grow for it,
// because otherwise it has memory for one message only.
func (c *Conn) readAhead() {
	if c.count == 0 || c.closing || c.err != nil || c.room() <= 0 {
		return
	}
	in := c.arrived[c.first].large
	if in == nil || in.begun() {
		return
	}
	if begun, _ := c.readAtOnce(in); begun || in.offer.length > maxAhead || c.proofNeeded(in) {
		return
	}
	if c.account.try(in.memory()) == nil {
		// An error is that of Recv, which tries again.
		_ = c.growAndRead(in)
	}
}

// maxAhead is how long a message may be for which the pool grows before the program asks for it.
const maxAhead = 4 << 20

// memory returns how many bytes of memory a message needs.
func (in *incoming) memory() int64 { return int64(classSize(classOf(int(in.offer.length)))) }

// readAtOnce begins to read an offered message if memory is at hand. The caller has checked that there is room.
func (c *Conn) readAtOnce(in *incoming) (begun bool, _ error) {
	m := c.pool.ready(int(in.offer.length))
	if m == nil {
		return false, nil
	}
	if c.account.try(in.memory()) != nil {
		c.pool.put(m)
		return false, nil
	}
	return true, c.readInto(in, m)
}

// fetch begins to read an offered message. If there is no memory, it waits until the peer has proved that it has the
// message, and until the limits permit more, and registers some. The caller holds c.mu, which fetch releases meanwhile,
// and has checked that there is room. If that changes, fetch does nothing.
func (c *Conn) fetch(ctx context.Context, in *incoming) error {
	if begun, err := c.readAtOnce(in); begun {
		return err
	}
	in.grows = true
	defer func() { in.grows = false }()
	if ok, err := c.prove(ctx, in); !ok {
		return err
	}
	if ok, err := c.use(ctx, in.memory()); !ok {
		return err
	}
	return c.growAndRead(in)
}

// growAndRead registers memory for an offered message and begins to read it. The caller has reserved the memory.
func (c *Conn) growAndRead(in *incoming) error {
	in.grows = true
	c.unlock()
	c.makeRoom()
	m, err := c.pool.get(int(in.offer.length))
	c.mu.Lock()
	in.grows = false
	if err == nil && c.err == nil && !c.closing && c.room() > 0 {
		return c.readInto(in, m)
	}
	c.account.release(in.memory())
	if err == nil {
		c.pool.put(m)
	}
	switch {
	case err != nil && c.closing:
		return c.closeError()
	case errors.Is(err, uverbs.ErrDeviceGone):
		return c.refused(err)
	}
	return err // the peer, which may have closed the connection, waits until the message has been read
}

// proofNeeded reports whether the peer has to prove that it has a message before much memory is registered for it: an
// offer has a few bytes only, and costs the peer nothing.
func (c *Conn) proofNeeded(in *incoming) bool {
	return in.memory() > slabSize && in.offer.length > c.account.proven && in.proofs < 2
}

// prove reads the first and the last bytes of an offered message. It reports whether they could be read.
func (c *Conn) prove(ctx context.Context, in *incoming) (bool, error) {
	for c.proofNeeded(in) {
		c.unlock()
		m, err := c.pool.get(proofLen)
		c.mu.Lock()
		if err != nil {
			return false, err
		}
		if c.err != nil || c.closing || c.room() <= 0 {
			c.pool.put(m)
			return false, nil
		}
		if ok, err := c.readProof(ctx, in, m); !ok {
			return false, err
		}
		in.proofs++
	}
	return c.err == nil && !c.closing, nil
}

// readProof reads bytes of an offered message into m, and waits until they are read. It reports whether they are.
func (c *Conn) readProof(ctx context.Context, in *incoming, m *memory) (bool, error) {
	addr := in.offer.addr
	if in.proofs == 1 {
		addr += in.offer.length - proofLen
	}
	m.hold() // by the request
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.ReadSGE(seq, flags, addr, in.offer.key, m.sge(proofLen))
	if err := b.Submit(); err != nil {
		m.drop()
		return false, c.refused(err)
	}
	o := c.newOp()
	o.pending, o.proof = 1, true
	c.posted(request{m: m, op: o}, flags)
	for o.pending > 0 {
		var err error
		if c.err == nil && !c.closing {
			err = c.step(ctx, &c.others, &o.waiter)
		}
		if o.pending > 0 && (err != nil || c.err != nil || c.closing) {
			o.abandoned = true
			return false, err
		}
	}
	ok := o.err == nil
	c.freeOp(o)
	return ok, nil // a READ that has failed has ended the connection
}

// proofLen is how many bytes prove reads at each end.
const proofLen = 8

// readInto posts the READ of an offered message.
func (c *Conn) readInto(in *incoming, m *memory) error {
	if c.account.budget != nil {
		m.user = &c.account
	}
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
	in.done, c.heard = true, true
	c.account.proven = max(c.account.proven, in.offer.length)
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
