package rdma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/goverbs/goverbs/uverbs"
)

// initReceives prepares for up to n receives. The peer has credits for messages from the beginning.
func (c *Conn) initReceives(n int) {
	depth := c.options.Depth
	c.slots, c.arrived = make([]memory, n), make([]Message, depth)
	c.messages.receives, c.messages.granted = depth, depth
}

// allocReceives registers memory for n more receives.
func (c *Conn) allocReceives(n int) error {
	size := c.options.receiveLen()
	if err := c.account.tryFixed(int64(n * size)); err != nil || c.shared != nil {
		return err
	}
	s := &slab{used: 1} // by the connection
	err := c.pool.retry(func() (err error) {
		s.mr, err = alloc(c.pool.pd, n*size, uverbs.LocalWrite)
		return err
	})
	if err != nil {
		c.account.untry(int64(n * size))
		return err
	}
	c.slabs = append(c.slabs, s)
	c.registered.Add(int64(s.mr.Len()))
	b := s.mr.Bytes()
	for i := range n {
		m := &c.slots[c.filled]
		m.bytes, m.size, m.mr, m.off = b[i*size:(i+1)*size:(i+1)*size], size, s.mr, i*size
		m.conn, m.slot, m.slab = c, c.filled, s
		c.filled++
	}
	return nil
}

func (c *Conn) freeReceives() error {
	var errs []error
	c.slabs = slices.DeleteFunc(c.slabs, func(s *slab) bool {
		err := s.mr.Close()
		errs = append(errs, err)
		if err == nil {
			c.registered.Add(-int64(s.mr.Len()))
			c.mu.Lock()
			s.unuse()
			c.mu.Unlock()
		}
		return err == nil
	})
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
	m.slab.unuse()
	c.freeReceive(m)
	c.sendControl(true)
}

// freeReceive posts the receive of a message or reply again.
func (c *Conn) freeReceive(m *memory) {
	reply := m.reply // another connection may have a shared receive next
	c.repost(m)
	if reply {
		c.replies.owed++
	} else {
		c.owe()
	}
}

func (c *Conn) repost(m *memory) {
	if m.shared != nil {
		c.giveShared(m)
		return
	}
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
// again. After [Listener.Shutdown], Recv returns [ErrShutdown].
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
				m, err := c.opened(m)
				if err != nil {
					return m, c.opError("receive from", err)
				}
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
		if err := c.step(ctx, needMessage, nil); err != nil {
			return Message{}, c.opError("receive from", err)
		}
	}
}

// receivable reports whether Recv can go on: a message can be returned, or the READ of one can begin.
func (c *Conn) receivable() bool {
	if c.count == 0 || c.closing || c.draining {
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
	case c.draining:
		return c.opError("receive from", ErrShutdown)
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

// takeArrived removes message i of those that have arrived.
func (c *Conn) takeArrived(i int) Message {
	at := func(i int) *Message { return &c.arrived[(c.first+i)%len(c.arrived)] }
	m := *at(i)
	for ; i > 0; i-- {
		*at(i) = *at(i - 1)
	}
	*at(0) = Message{}
	c.first = (c.first + 1) % len(c.arrived)
	c.count--
	return m
}

// discard drops a message that the program does not receive.
func (c *Conn) discard(m Message) {
	if m.large != nil {
		c.owe() // its receive was posted again at once
	}
	c.drop(m)
}

// deliver makes the program the owner of a message.
func (c *Conn) deliver(m Message) Message {
	c.stats.received++
	c.stats.receivedBytes += uint64(m.n)
	if large := m.large; large != nil {
		m.Buffer = c.takeMessage(large.m, m.n)
		large.m.drop()
		if m.kind != kindReply {
			c.owe() // its receive was posted again at once
		}
		if large.seal == nil { // otherwise, opened follows
			c.freeIncoming(large)
			m.large = released
		}
		return m
	}
	n := m.n
	if m.write {
		n = 0
	}
	switch from := m.Buffer.m; {
	case from.conn != nil: // it is not of moveReply
		from.slab.used++
	case from.shared != nil:
		m.Buffer.m = c.takeShared(from, n)
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
			continue
		}
		if c.shared != nil {
			c.shared.posted.Add(-1)
		}
		if err := wc.Err(); err != nil {
			c.inHand = int(wc.WRID &^ recvBit)
			c.failReceive(wc, err)
		} else if err := c.receive(wc); err != nil {
			c.failReceive(wc, err)
		}
	}
	c.sendControl(false)
}

// failReceive ends the connection because of what has arrived.
func (c *Conn) failReceive(wc *uverbs.WC, err error) {
	c.fail(err)
	if slot := &c.slots[wc.WRID&^recvBit]; c.shared != nil && c.inHand == slot.slot {
		c.giveShared(slot)
	}
}

// receive handles what the peer has sent.
func (c *Conn) receive(wc *uverbs.WC) error {
	c.heard = true
	slot := &c.slots[wc.WRID&^recvBit]
	c.inHand = slot.slot
	n := int(wc.ByteLen)
	if c.seal != nil {
		var err error
		if n, err = c.openSend(wc, slot); err != nil {
			return err
		}
	}
	if wc.Opcode == uverbs.WCRecvRDMAImm {
		if c.eof {
			return fmt.Errorf("%w: a WRITE with immediate data after the end", ErrProtocol)
		}
		return c.queue(Message{Buffer: Buffer{m: slot}, n: n, imm: wc.Imm, write: true})
	}
	if wc.Flags&uverbs.WCWithImm == 0 {
		return fmt.Errorf("%w: a SEND without immediate data", ErrProtocol)
	}
	if limit := c.options.EagerSize; n > limit { // receives have room for a tag behind it
		return fmt.Errorf("%w: a SEND of %d bytes: Options.EagerSize is %d", ErrProtocol, n, limit)
	}
	k, credits, number := unpackImm(wc.Imm)
	if err := c.getCredits(credits); err != nil {
		return err
	}
	return c.dispatch(k, number, slot, n)
}

// dispatch handles a SEND of n bytes.
func (c *Conn) dispatch(k kind, number int, slot *memory, n int) error {
	switch {
	case n != 0 && !k.hasBody():
		return fmt.Errorf("%w: %d bytes in a SEND of kind %d", ErrProtocol, n, k)
	case c.eof && (k.base() <= kindOffer || k == kindCancel):
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
		return c.dispatchVariant(k, number, slot, n)
	}
	c.repost(slot)
	return nil
}

// dispatchVariant handles a SEND of a kind with variant.
func (c *Conn) dispatchVariant(k kind, number int, slot *memory, n int) error {
	switch {
	case k == kindWritten && c.seal != nil && c.seal.opening:
		return c.written(slot, n)
	case k == kindSeal && c.seal != nil && c.seal.rx.number == 1:
		c.repost(slot)
		return nil
	case !c.hasTrailers():
	case k == kindCallTrailer:
		body, read, err := cutTrailer(slot.bytes[:n])
		if err != nil {
			return err
		}
		t, err := read.termsOfCall()
		if err != nil {
			return err
		}
		if err := c.queue(Message{Buffer: Buffer{m: slot}, n: len(body), kind: kindCall, number: number}); err != nil {
			return err
		}
		c.calls.asked[number].terms = t
		return nil
	case k == kindError:
		return c.repliedVariant(Message{Buffer: Buffer{m: slot}, n: n, kind: kindReply, number: number})
	}
	return fmt.Errorf("%w: a SEND of kind %d", ErrProtocol, k)
}

// written handles a kindWritten.
func (c *Conn) written(slot *memory, n int) error {
	if n != writtenLen {
		return fmt.Errorf("%w: %d bytes beside a WRITE: there are %d", ErrProtocol, n, writtenLen)
	}
	le := binary.LittleEndian
	imm, length := le.Uint32(slot.bytes), le.Uint32(slot.bytes[4:])
	return c.queue(Message{Buffer: Buffer{m: slot}, n: int(length), imm: imm, write: true})
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

// dropArrived drops the memory of messages and replies that were read and not received, when no more are.
func (c *Conn) dropArrived() {
	c.mu.Lock()
	defer c.mu.Unlock()
	drop := func(m *Message) {
		switch large := m.large; {
		case large == nil && m.Buffer.m != nil && m.Buffer.m.shared != nil:
			c.giveShared(m.Buffer.m)
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
