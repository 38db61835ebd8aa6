package rdma

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/goverbs/goverbs/uverbs"
)

// A message that is longer than the peer's receives is offered: a memory window lets the peer read exactly
// the message, through this connection only. When the peer has taken it, the window is invalidated, and then the
// memory is used again. Replies have windows that messages do not use: the peer takes a message when its program
// receives, which may wait for a reply.

// initWindows sets up n windows for messages, and as many for replies after them.
func (c *Conn) initWindows(n int) {
	c.windows = make([]window, 2*n)
	for i := range c.windows {
		w := &c.windows[i]
		w.number, w.kind = i, kindMessage
		if i >= n {
			w.kind = kindReply
		}
	}
}

func (c *Conn) closeWindows() error {
	var errs []error
	for i := range c.windows {
		w := &c.windows[i]
		if w.mw != nil {
			errs = append(errs, w.mw.Close())
		}
		if w.m != nil {
			w.m.drop()
			w.m = nil
		}
	}
	c.mu.Lock()
	shares := slices.Collect(maps.Keys(c.shares))
	c.mu.Unlock()
	for _, s := range shares {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// idleWindow returns a window for a message of kind k, or nil.
func (c *Conn) idleWindow(k kind) *window {
	half := len(c.windows) / 2
	windows := c.windows[:half]
	if k.base() == kindReply {
		windows = c.windows[half:]
	}
	for i := range windows {
		if windows[i].state == windowIdle {
			return &windows[i]
		}
	}
	return nil
}

// offered returns how many offers the peer has not taken.
func (c *Conn) offered() (n int) {
	for i := range c.windows {
		if s := c.windows[i].state; s != windowIdle && s != windowAllocating {
			n++
		}
	}
	return n
}

// mayOffer reports whether a message of kind k can be offered.
func (c *Conn) mayOffer(k kind) bool {
	return c.flow(k).credits > 0 && c.room() > 1 && c.idleWindow(k) != nil
}

// offer offers n bytes of m, with the trailer t of a call. The caller's use of m passes to the offer.
func (c *Conn) offer(ctx context.Context, k kind, number int, m *memory, n int, t []byte) error {
	if len(c.windows) == 0 {
		return c.tooLong(n)
	}
	body, err := c.offerBody(t)
	if err != nil {
		return err
	}
	if body != nil {
		defer body.drop()
	}
	var seal *longSeal
	if c.seal != nil {
		if seal, err = c.sealLong(m.bytes[:n]); err != nil {
			return err
		}
		defer c.freeLong(seal)
	}
	for {
		if err := c.lockToOffer(ctx, k); err != nil {
			return err
		}
		w := c.idleWindow(k)
		ready, err := w.mw != nil, error(nil)
		if ready {
			err = c.postOffer(w, k, number, m, n, seal, body, len(t))
		} else {
			err = c.allocWindow(w, m.mr.PD())
		}
		c.unlock() // a deferred call in a loop would allocate
		if ready || err != nil {
			return err
		}
	}
}

// allocWindow allocates a memory window. The caller holds c.mu, which allocWindow releases meanwhile.
func (c *Conn) allocWindow(w *window, pd *uverbs.PD) error {
	w.state = windowAllocating
	c.unlock()
	mw, err := pd.AllocMW(uverbs.MWType2)
	c.mu.Lock()
	w.state = windowIdle
	if errors.Is(err, uverbs.ErrNotSupported) {
		err = fmt.Errorf("a message of more than %d bytes, the peer's Options.EagerSize: %w", c.remote.eager, err)
	}
	if err != nil {
		return c.orEndLocked(err)
	}
	if end := c.usable(); end != nil { // Close does not know the window
		return errors.Join(end, mw.Close())
	}
	w.mw, w.rkey = mw, mw.RKey()
	return nil
}

// lockToOffer acquires c.mu and waits until a message of kind k can be offered. If it returns an error, the caller does
// not hold c.mu.
func (c *Conn) lockToOffer(ctx context.Context, k kind) error {
	c.mu.Lock()
	switch {
	case c.mayOffer(k) && c.usable() == nil && ctx.Err() == nil:
		return nil
	case k.base() == kindReply:
		return c.waitToSend(ctx, needReplyOffer)
	}
	return c.waitToSend(ctx, needOffer)
}

// offerBody returns memory for an offer and the trailer behind it, or nil without a trailer.
func (c *Conn) offerBody(t []byte) (*memory, error) {
	if len(t) == 0 {
		return nil, nil
	}
	n := c.offerLen()
	m, err := c.get(n + len(t) + c.tag)
	if err != nil {
		return nil, err
	}
	m.hold()
	copy(m.bytes[n:], t)
	return m, nil
}

// postOffer binds a window to n bytes of m and sends the offer. If body is not nil, it has a trailer of the given
// length. If seal is not nil, m is sealed with it.
func (c *Conn) postOffer(w *window, k kind, number int, m *memory, n int, seal *longSeal, body *memory,
	trailer int) error {
	rkey := uverbs.IncRKey(w.rkey)
	o := offer{kind: k, number: number, key: rkey, addr: m.mr.Addr() + uint64(m.off), length: uint64(n)}
	fence, err := c.fenceBind()
	if err != nil {
		return c.refused(err)
	}
	var encoded [sealedOfferLen]byte
	o.put((*[offerLen]byte)(encoded[:]))
	fixed := encoded[:offerLen]
	if seal != nil {
		seal.put(encoded[offerLen:])
		fixed = encoded[:]
	}
	w.state = windowOffered
	seq, flags := c.next(c.idleWindow(k) == nil) // completes the requests that free other windows
	credits := c.owedCredits()
	imm := packImm(kindOffer, credits, w.number)
	fixed, size, err := c.sealOffer(imm, fixed, body, trailer)
	if err != nil {
		w.state = windowIdle
		return c.refused(err)
	}
	b := c.qp.StartSend()
	b.BindMW(seq, fence, w.mw, rkey, uverbs.MWRange{MR: m.mr, Off: m.off, Len: n, Access: uverbs.RemoteRead})
	b.SendImm(seq+1, flags, imm)
	if body != nil {
		b.SGE(body.sge(size))
		body.hold() // by the request
	} else {
		b.Inline(fixed)
	}
	if err := b.Submit(); err != nil {
		w.state = windowIdle
		if body != nil {
			body.drop()
		}
		return c.refused(err)
	}
	w.mw.SetRKey(rkey)
	w.rkey, w.m, w.carries = rkey, m, k.base()
	c.posted(request{}, 0)
	c.posted(request{m: body}, flags)
	c.sent(credits)
	c.countSent(k, number, n)
	return nil
}

// sealOffer seals an offer, if the connection seals. With a trailer, it is in body, and has size bytes then.
func (c *Conn) sealOffer(imm uint32, fixed []byte, body *memory, trailer int) (sealed []byte, size int, err error) {
	if body == nil {
		if c.seal != nil {
			fixed, err = c.sealInline(imm, fixed)
		}
		return fixed, 0, err
	}
	size = copy(body.bytes, fixed) + trailer
	if c.seal != nil {
		size, err = c.sealMemory(imm, body, size)
	}
	return nil, size, err
}

// taken handles the message that says that the peer has read an offer.
func (c *Conn) taken(number int) error {
	if number >= len(c.windows) || c.windows[number].state != windowOffered {
		return errNotOffered
	}
	c.windows[number].state = windowTaken
	c.control.invalidate = true
	return nil
}

// invalidate posts the requests that invalidate windows. It returns false if there is no room.
func (c *Conn) invalidate() bool {
	for i := range c.windows {
		w := &c.windows[i]
		if w.state != windowTaken {
			continue
		}
		if c.space() == 0 {
			return false
		}
		w.state = windowClosing
		seq, flags := c.next(c.idleWindow(w.kind) == nil || len(w.flushes) > 0) // else, no call waits for it yet
		b := c.qp.StartSend()
		b.LocalInv(seq, flags, w.rkey)
		if err := b.Submit(); err != nil {
			c.fail(err)
			return true
		}
		c.posted(request{window: w}, flags)
	}
	return true
}

// windowFree handles the completion of the request that invalidates a window.
func (c *Conn) windowFree(w *window) {
	w.state = windowIdle
	if w.m != nil {
		w.m.drop()
		w.m = nil
	}
}
