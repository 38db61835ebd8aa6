package rdma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// begun reports whether a READ of the message is posted, or will be.
func (in *incoming) begun() bool { return in.grows || in.reading || in.done }

var errNotOffered = fmt.Errorf("%w: it has taken what was not offered", ErrProtocol)

// offeredBy handles an offer of the peer.
func (c *Conn) offeredBy(slot *memory, number, n int) error {
	o, t, err := c.parseOffered(slot.bytes[:n])
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
	if s := c.seal; s != nil && s.opening {
		if in.seal, err = s.parseLong(slot.bytes[offerLen:sealedOfferLen]); err != nil {
			return err
		}
	}
	m := Message{c: c, n: int(o.length), kind: o.kind, number: o.number, large: in}
	c.repost(slot)
	if o.kind == kindReply {
		if len(t.pairs) > 0 {
			m.terms = &terms{pairs: t.pairs}
		}
		return c.replied(m)
	}
	if err := c.queue(m); err != nil {
		return err
	}
	if o.kind == kindCall {
		c.calls.asked[o.number].terms = t
	}
	c.prefetch(in)
	return nil
}

// parseOffered checks an offer, and returns the terms of a call or reply with a trailer. The kind of the offer is that
// without variant.
func (c *Conn) parseOffered(b []byte) (o offer, t terms, err error) {
	fixed := offerLen
	if c.seal != nil && c.seal.opening {
		fixed = sealedOfferLen
	}
	trailed := len(b) > fixed && c.hasTrailers()
	var read trailer
	if trailed {
		if b, read, err = cutTrailer(b); err != nil {
			return o, t, err
		}
	}
	if len(b) != fixed {
		return o, t, fmt.Errorf("%w: an offer of %d bytes", ErrProtocol, len(b))
	}
	if o, err = parseOffer(b[:offerLen], c.options.MaxMessage); err != nil {
		return o, t, err
	}
	if (o.kind&variant != 0) != trailed || o.kind == kindReplyTrailer && (!c.hasReplyTrailers() || read.code > 0) {
		return o, t, fmt.Errorf("%w: an offer of a message of kind %d, with a trailer: %v, and of code %d", ErrProtocol,
			o.kind, trailed, read.code)
	}
	if o.kind = o.kind.base(); o.kind == kindReply {
		t, err = read.termsOfReply()
	} else {
		t, err = read.termsOfCall()
	}
	return o, t, err
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

func (c *Conn) freeIncoming(in *incoming) {
	if in.seal != nil {
		c.seal.freeLong(in.seal)
		in.seal = nil
	}
	c.idleIncoming = append(c.idleIncoming, in)
}

// prefetch begins to read a message before the program asks for it, if memory is at hand.
func (c *Conn) prefetch(in *incoming) {
	if c.err == nil && !c.handshaking && c.room() > 0 {
		// Recv returns the error.
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
		// Recv tries again, and returns the error.
		_ = c.growAndRead(in)
	}
}

// maxAhead is how long a message may be for which the pool grows before the program asks for it.
const maxAhead = 4 << 20

// memory returns how many bytes of memory a message needs.
func (in *incoming) memory() int64 { return int64(classSize(classOf(int(in.offer.length)))) }

// readAtOnce begins to read an offered message if memory is at hand. The caller has checked that there is room.
func (c *Conn) readAtOnce(in *incoming) (begun bool, _ error) {
	if in.call != nil && in.call.into != nil {
		return true, c.readInto(in, in.call.into)
	}
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
	if ok, err := c.waitForMemory(ctx, in.memory()); !ok {
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
			err = c.step(ctx, needOwn, &o.waiter)
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
	if c.account.budget != nil && (in.call == nil || in.call.into == nil) {
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
		c.waiters.Wake(in.call.waiter)
	}
	if in.dropped {
		in.m.drop()
		c.freeIncoming(in)
	}
}

// opened opens a long message that the program is to get, if it is sealed. The caller holds c.mu, which opened releases
// meanwhile. If the message cannot be opened, the connection ends.
func (c *Conn) opened(m Message) (Message, error) {
	in := m.large
	if in == nil || in.seal == nil {
		return m, nil
	}
	c.unlock()
	err := in.seal.open(m.Buffer.m.bytes[:m.n])
	c.mu.Lock()
	c.freeIncoming(in)
	m.large = released
	if err == nil {
		return m, nil
	}
	m.Buffer.Release()
	return Message{}, c.forged(err)
}

// forged ends the connection because of a long message that was not opened. It discards the messages that have arrived
// and that no call has returned, and no later SEND is opened. So the program gets no message that is behind the one
// that was not opened, except those that Handle has begun to handle before. The caller holds c.mu.
func (c *Conn) forged(err error) error {
	c.seal.rx.broken = true
	end := c.refused(err)
	if c.err != nil && c.eof { // the peer has closed the connection
		end = &broken{err}
		c.err = end
	}
	for c.count > 0 {
		c.discard(c.takeArrived(0))
	}
	return end
}

// termsOfCall returns the terms of a call with this trailer. They do not refer to its memory.
func (t *trailer) termsOfCall() (x terms, err error) {
	if t.code > 0 {
		return x, fmt.Errorf("%w: a call with the code of an error, %d", ErrProtocol, t.code)
	}
	x.pairs = bytes.Clone(t.pairs) // nil without any
	if t.timeout > 0 {
		x.deadline = time.Now().Add(t.timeout)
	}
	return x, nil
}

// termsOfReply returns the terms of a reply with this trailer. They do not refer to its memory.
func (t *trailer) termsOfReply() (x terms, err error) {
	if t.timeout > 0 {
		return x, fmt.Errorf("%w: a reply with a timeout of %v", ErrProtocol, t.timeout)
	}
	x.pairs = bytes.Clone(t.pairs)
	return x, nil
}
