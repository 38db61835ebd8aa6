package rdma

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
)

// This file has the proof of who the sides are: a handshake of TLS 1.3 in the first messages of a connection, before
// the program has it. Then each side sends, encrypted by TLS, a digest of what identifies the connection. So two
// connections of a third party that passes on the handshake are noticed.

// CodeUnauthenticated is the code of a [CloseError] if a side has closed the connection because the peer has not proved
// who it is: see Options.TLS. Programs use other codes.
const CodeUnauthenticated = 1<<64 - 2

// TLS returns what the handshake of Options.TLS has found out about the peer, or nil without Options.TLS.
func (c *Conn) TLS() *tls.ConnectionState { return c.tls }

// authenticate proves to the peer, which has the given role, who this side is, and checks who the peer is. If that
// fails, it ends the connection, which the caller closes.
func (c *Conn) authenticate(ctx context.Context, peer role) error {
	if c.options.TLS == nil {
		return nil
	}
	c.setHandshaking(true)
	if err := c.handshake(ctx, peer); err != nil {
		c.rejectPeer(ctx, err)
		return err
	}
	c.setHandshaking(false)
	return nil
}

func (c *Conn) setHandshaking(to bool) {
	c.mu.Lock()
	defer c.unlock()
	c.handshaking, c.stats = to, counters{}
}

// rejectLimit limits how long a side waits until the peer knows why it is rejected.
const rejectLimit = time.Second

// isRejection reports whether err means that the two sides do not trust each other, so that a later attempt fails, too.
func isRejection(err error) bool {
	return errors.Is(err, ErrUnauthenticated) || errors.Is(err, ErrProtocol)
}

// rejectPeer ends the connection and sends the reason. After any other error than that of a rejection, such as a
// timeout, the peer only learns that the connection has ended: it may try again.
func (c *Conn) rejectPeer(ctx context.Context, why error) {
	c.mu.Lock()
	if !isRejection(why) {
		c.fail(why)
		c.unlock()
		return
	}
	ctx, cancel := context.WithTimeout(ctx, rejectLimit)
	defer cancel()
	// The caller returns why. A peer that does not get the reason gets the end of the connection.
	_ = c.endWith(ctx, &CloseError{Code: CodeUnauthenticated, Text: c.closeText(why.Error())})
}

// handshake runs the handshake of TLS.
func (c *Conn) handshake(ctx context.Context, peer role) error {
	own, err := c.digest(peer)
	if err != nil {
		return err
	}
	seal, err := c.agreeSeal(peer)
	if err != nil {
		return err
	}
	p := &pipe{c: c, ctx: ctx}
	t := tls.Server(p, c.options.TLS)
	if peer == server {
		t = tls.Client(p, c.options.TLS)
	}
	err = t.HandshakeContext(ctx)
	if err == nil && seal {
		err = c.setSeals(t, own, peer.other())
	}
	if err == nil {
		err = exchangeDigests(t, own, peer)
	}
	state := t.ConnectionState()
	switch {
	case p.err != nil:
		return c.endOfProof(p.err)
	case ctx.Err() != nil:
		return ctxerr.Of(ctx)
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case len(p.rest) > 0:
		return fmt.Errorf("%w: %d bytes behind the handshake of TLS", ErrProtocol, len(p.rest))
	case state.Version < tls.VersionTLS13:
		return fmt.Errorf("%w: the result of Options.TLS.GetConfigForClient permits %s: set its MinVersion to TLS 1.3",
			ErrUnauthenticated, tls.VersionName(state.Version))
	}
	c.tls = &state
	return c.endOfProof(c.startSealing(ctx))
}

// endOfProof returns the error of a handshake during which the connection has ended because of err.
func (c *Conn) endOfProof(err error) error {
	var reason *CloseError
	if errors.As(err, &reason) && reason.Remote && reason.Code == CodeUnauthenticated {
		return fmt.Errorf("%w: the peer says: %q", ErrUnauthenticated, reason.Text)
	}
	return err
}

// agreeSeal reports whether messages are to be sealed. The handshake of TLS, which follows, is bound to the hellos that
// say so.
func (c *Conn) agreeSeal(peer role) (bool, error) {
	theirs := c.remote.features
	if c.options.Seal && theirs&featureCanSeal == 0 {
		return false, fmt.Errorf("%w: the %v uses Options.Seal and the %v's version of this package does not: update the %v",
			ErrUnauthenticated, peer.other(), peer, peer)
	}
	return theirs&featureCanSeal != 0 && (c.options.Seal || theirs&featureWantsSeal != 0), nil
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
	for !s.opening || !s.sending {
		if err := c.usable(); err != nil {
			return err
		}
		if !s.sending && c.space() > 0 {
			c.inline, c.tag, s.sending = c.inline-tagLen, tagLen, true
			if err := c.postControl(kindSeal, 0, nil, false); err != nil {
				return c.refused(err)
			}
			continue
		}
		if err := c.step(ctx, needOwn, nil); err != nil {
			return err
		}
	}
	if c.err != nil && !c.eof { // what has arrived later has ended it
		return c.err
	}
	if s.unread > 0 {
		return fmt.Errorf("%w: %d messages between the handshake of TLS and the first SEND that is sealed", ErrProtocol,
			s.unread)
	}
	return nil
}

// exchangeDigests sends the digest and compares the peer's. The server, which checks the client last, sends its digest
// after that: then both know that they have succeeded.
func exchangeDigests(t *tls.Conn, own []byte, peer role) error {
	if peer == server {
		if _, err := t.Write(own); err != nil {
			return err
		}
	}
	b := make([]byte, len(own))
	if _, err := io.ReadFull(t, b); err != nil {
		return err
	}
	if !bytes.Equal(b, own) {
		return errPassedOn
	}
	if peer == server {
		return nil
	}
	_, err := t.Write(own)
	return err
}

var errPassedOn = errors.New("the peer's proof is of another connection: a third party passes it on")

// digest returns a digest of what identifies the connection: the addresses, the queue pairs and the hellos of both
// sides.
func (c *Conn) digest(peer role) ([]byte, error) {
	attr, err := c.qp.Query(uverbs.MaskDestQPN)
	if err != nil {
		return nil, err
	}
	hello := c.hello()
	sides := []identity{{c.local, c.qp.QPN(), hello.bytes()}, {c.peer, attr.DestQPN, c.remote.raw}}
	if peer == client {
		sides[0], sides[1] = sides[1], sides[0]
	}
	h := sha256.New()
	h.Write([]byte("goverbs rdma: client, server"))
	for _, s := range sides {
		s.write(h)
	}
	return h.Sum(nil), nil
}

// An identity is what a side of a connection has to itself.
type identity struct {
	addr  netip.AddrPort
	qpn   uint32
	hello []byte
}

func (s *identity) write(h hash.Hash) {
	ip, be := s.addr.Addr().As16(), binary.BigEndian
	b := be.AppendUint16(ip[:], s.addr.Port())
	b = be.AppendUint32(b, s.qpn)
	b = be.AppendUint32(b, uint32(len(s.hello)))
	h.Write(append(b, s.hello...))
}

// A pipe carries the handshake of TLS in messages. It is a net.Conn for crypto/tls, whose calls end with ctx.
type pipe struct {
	c    *Conn
	ctx  context.Context
	rest []byte // of the last message
	err  error  // the first one of the connection
}

var _ net.Conn = (*pipe)(nil)

// Read implements net.Conn.
func (p *pipe) Read(b []byte) (int, error) {
	for len(p.rest) == 0 {
		m, err := p.c.recvPlain(p.ctx)
		if err != nil {
			return 0, p.fail(err)
		}
		p.rest = m.Copy()
	}
	n := copy(b, p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

// Write implements net.Conn. It sends messages that need no offer.
func (p *pipe) Write(b []byte) (n int, err error) {
	for n < len(b) {
		part := b[n:min(n+p.c.remote.eager, len(b))]
		if err := p.c.send(p.ctx, kindMessage, 0, part, nil); err != nil {
			return n, p.fail(err)
		}
		n += len(part)
	}
	return n, nil
}

func (p *pipe) fail(err error) error {
	if p.err == nil {
		p.err = err
	}
	return err
}

// Close implements net.Conn.
func (p *pipe) Close() error { return nil }

// LocalAddr implements net.Conn.
func (p *pipe) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(p.c.local) }

// RemoteAddr implements net.Conn.
func (p *pipe) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(p.c.peer) }

// SetDeadline implements net.Conn.
func (p *pipe) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (p *pipe) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// recvPlain receives a message of the handshake. It returns an error if the next message is anything else.
func (c *Conn) recvPlain(ctx context.Context) (Message, error) {
	c.mu.Lock()
	defer c.unlock()
	for c.count == 0 {
		err := c.receiveError()
		if err == nil {
			err = c.step(ctx, needMessage, nil)
		}
		if err != nil {
			return Message{}, err
		}
	}
	if m := &c.arrived[c.first]; m.large != nil || m.write || m.kind != kindMessage {
		return Message{}, fmt.Errorf("%w: a call, a WRITE or a long message before the handshake of TLS has ended",
			ErrProtocol)
	}
	if s := c.seal; s != nil && s.unread > 0 {
		s.unread--
	}
	return c.pop(), nil
}
