package rdma

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// This file has what a sealed connection does: see Options.Seal. Each side sends a kindSeal when the handshake of TLS
// has succeeded. That is its first SEND which is sealed, and from then on all are. A side has the connection when both
// have sent theirs, so that nothing which is not sealed reaches the program.
//
// SENDs are sealed when they are posted, and opened when they have arrived, both while c.mu is held: they are numbered
// in this order. Long messages are sealed before they are offered, and opened after they were read, without c.mu.

// Sealed reports whether the messages of the connection are sealed: see Options.Seal.
func (c *Conn) Sealed() bool { return c.seal != nil }

// agreeSeal reports whether messages are to be sealed. The handshake of TLS, which follows, is bound to the hellos that
// say so.
func (c *Conn) agreeSeal(peer role) (bool, error) {
	theirs := c.remote.features
	if c.options.Seal && theirs&featureSeal == 0 {
		return false, fmt.Errorf("%w: the %v uses Options.Seal and the %v's version of this package does not: update the %v",
			ErrUnauthenticated, peer.other(), peer, peer)
	}
	return theirs&featureSeal != 0 && (c.options.Seal || theirs&featureSealed != 0), nil
}

// setSeals derives the keys, before the peer can send a kindSeal. This side has the role own.
func (c *Conn) setSeals(t *tls.Conn, digest []byte, own role) error {
	state := t.ConnectionState()
	s, err := newSeals(&state, digest, own, c.hello(), &c.remote)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.unlock()
	s.out = make([]byte, c.inline)
	c.seal = s
	return nil
}

// startSealing sends a kindSeal, and waits for that of the peer.
func (c *Conn) startSealing(ctx context.Context) error {
	c.mu.Lock()
	defer c.unlock()
	s := c.seal
	if s == nil {
		return nil
	}
	for !s.receives || !s.sends {
		if err := c.usable(); err != nil {
			return err
		}
		if !s.sends && c.space() > 0 {
			c.inline, c.tag, s.sends = c.inline-tagLen, tagLen, true
			if err := c.postControl(kindSeal, 0, nil, false); err != nil {
				return c.refused(err)
			}
			continue
		}
		if err := c.step(ctx, needOwn, nil); err != nil {
			return err
		}
	}
	if s.unread > 0 {
		return fmt.Errorf("%w: %d messages between the handshake of TLS and the first SEND that is sealed", ErrProtocol,
			s.unread)
	}
	return nil
}

// offerLen returns the length of an offer of this side, without a trailer.
func (c *Conn) offerLen() int {
	if c.tag > 0 {
		return sealedOfferLen
	}
	return offerLen
}

// sealInline returns data, sealed if it is to be. The result is valid until the next call.
func (c *Conn) sealInline(imm uint32, data []byte) ([]byte, error) {
	s := c.seal
	if !s.sends {
		return data, nil
	}
	n := copy(s.out, data)
	err := s.tx.seal(imm, s.out, n)
	return s.out[:n+tagLen], err
}

// sealMemory seals the first n bytes of m, if they are to be. It returns how many bytes there are then.
func (c *Conn) sealMemory(imm uint32, m *memory, n int) (int, error) {
	s := c.seal
	if !s.sends {
		return n, nil
	}
	return n + tagLen, s.tx.seal(imm, m.bytes, n)
}

// openSend opens a SEND in its receive, and returns its length.
func (c *Conn) openSend(wc *uverbs.WC, slot *memory) (int, error) {
	s, n := c.seal, int(wc.ByteLen)
	k, _, _ := unpackImm(wc.Imm)
	switch send := wc.Opcode != uverbs.WCRecvRDMAImm && wc.Flags&uverbs.WCWithImm != 0; {
	case send && k == kindSeal && !s.receives:
		s.receives, s.unread = true, c.count
	case !s.receives:
		return n, nil
	case !send:
		s.rx.broken = true
		return 0, fmt.Errorf("%w: a SEND without immediate data, or a WRITE with it, on a sealed connection", ErrForged)
	}
	return s.rx.open(wc.Imm, slot.bytes[:n])
}

// sealLong seals a long message in place.
func (c *Conn) sealLong(b []byte) (*longSeal, error) {
	c.mu.Lock()
	x, err := c.seal.nextLong()
	c.unlock()
	if err != nil {
		return nil, err
	}
	x.seal(b)
	return x, nil
}

// freeLong takes back what sealLong has returned.
func (c *Conn) freeLong(x *longSeal) {
	c.mu.Lock()
	defer c.unlock()
	c.seal.freeLong(x)
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

// forged ends the connection because of a long message that was not opened. No later message reaches the program. The
// caller holds c.mu.
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

// writtenLen is the length of a kindWritten: the immediate data and the length of a WRITE.
const writtenLen = 8

// written handles a kindWritten.
func (c *Conn) written(slot *memory, n int) error {
	if n != writtenLen {
		return fmt.Errorf("%w: %d bytes beside a WRITE: there are %d", ErrProtocol, n, writtenLen)
	}
	le := binary.LittleEndian
	imm, length := le.Uint32(slot.bytes), le.Uint32(slot.bytes[4:])
	return c.queue(Message{Buffer: Buffer{m: slot}, n: int(length), imm: imm, write: true})
}
