package rdma

import (
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

// offerLen returns the length of an offer of this side, without a trailer.
func (c *Conn) offerLen() int {
	if c.tag > 0 {
		return sealedOfferLen
	}
	return offerLen
}

// sealInline returns data, sealed if the connection seals. The result is valid until the next call. After an error, the
// connection ends.
func (c *Conn) sealInline(imm uint32, data []byte) ([]byte, error) {
	s := c.seal
	if !s.sending {
		return data, nil
	}
	if room := len(s.out) - tagLen; len(data) > room {
		return nil, fmt.Errorf("%w: %d bytes to seal, of %d", errSealRoom, len(data), room)
	}
	n := copy(s.out, data)
	if err := s.tx.seal(imm, s.out, n); err != nil {
		return nil, err
	}
	return s.out[:n+tagLen], nil
}

// sealMemory seals the first n bytes of m, if the connection seals. It returns how many bytes there are then. After an
// error, the connection ends.
func (c *Conn) sealMemory(imm uint32, m *memory, n int) (int, error) {
	s := c.seal
	if !s.sending {
		return n, nil
	}
	return n + tagLen, s.tx.seal(imm, m.bytes, n)
}

// openSend opens a SEND in its receive, and returns its length.
//
// A SEND before the kindSeal is not sealed, and somebody on the path may have added it. A message, a call, an offer or
// a WRITE with immediate data makes startSealing fail, and so does an end, because the kindSeal after it is refused:
// the end of an honest peer that has sent a kindSeal is sealed, too. Forged credits can make this side send more than
// the peer has room for, which ends the connection. Whoever can add packets can do that anyway.
func (c *Conn) openSend(wc *uverbs.WC, slot *memory) (int, error) {
	s, n := c.seal, int(wc.ByteLen)
	k, _, _ := unpackImm(wc.Imm)
	send := wc.Opcode != uverbs.WCRecvRDMAImm && wc.Flags&uverbs.WCWithImm != 0
	switch {
	case send && k == kindSeal && !s.opening:
		if c.eof {
			c.eof, s.rx.broken = false, true
			return 0, fmt.Errorf("%w: an end has arrived before the first SEND that is sealed", ErrForged)
		}
		s.unread = c.count
	case !s.opening && !s.rx.broken:
		return n, nil
	case !send:
		s.rx.broken = true
		return 0, fmt.Errorf("%w: a SEND without immediate data, or a WRITE with it, on a sealed connection", ErrForged)
	}
	n, err := s.rx.open(wc.Imm, slot.bytes[:n])
	s.opening = s.opening || err == nil
	return n, err
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
