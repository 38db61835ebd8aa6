package rdma

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// sealedSides returns the sides of a sealed connection, which break rules of package verbstest.
func sealedSides(t testing.TB, o Options) (here, there *Conn) {
	t.Helper()
	sealed := o
	sealed.Seal = true
	here, there, err := provenSides(t, sealed, ListenOptions{Options: o})
	if err != nil {
		t.Fatal(err)
	}
	return here, there
}

// provenSides returns the sides of a connection with TLS, of a client with the options co and of a listener, or the
// error of Dial. TLS of an option may have fields that are to be set.
func provenSides(t testing.TB, co Options, so ListenOptions) (here, there *Conn, err error) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.ReceiveLength, verbstest.BadRequest,
		verbstest.CQCapacity, verbstest.Unsignaled, verbstest.NotReleased)
	serverConfig, clientConfig := tlsConfigs(t)
	if co.TLS != nil {
		clientConfig.Renegotiation = co.TLS.Renegotiation
	}
	if so.TLS != nil {
		of := serverConfig.Clone()
		of.Renegotiation = so.TLS.Renegotiation
		serverConfig.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return of, nil }
	}
	co.TLS, co.Linger, so.TLS, so.Linger = clientConfig, -1, serverConfig, -1
	ctx := bounded(t)
	var l *Listener
	accepted := make(chan *Conn, 1)
	m := n.Machine()
	m.Run(func() {
		l, err = Listen(":0", &so)
		good(t, l, err)
		go func() {
			c, err := l.Accept(ctx)
			if err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	n.Machine().Run(func() { here, err = Dial(ctx, m.AddrPort(l.Addr().Port()).String(), &co) })
	if err == nil {
		there = <-accepted
	}
	if closed := l.Close(); closed != nil || err == nil && there == nil {
		t.Fatal(closed)
	}
	if err != nil {
		<-accepted
		return nil, nil, err
	}
	t.Cleanup(func() {
		mayLose(t, here.Close())
		mayLose(t, there.Close())
	})
	return here, there, nil
}

// A frame is a SEND.
type frame struct {
	imm  uint32
	body []byte
}

// sealFrame returns a sealed SEND that is not posted.
func (c *Conn) sealFrame(t testing.TB, k kind, number int, data []byte) frame {
	t.Helper()
	c.mu.Lock()
	defer c.unlock()
	imm := packImm(k, credits{}, number)
	b, err := c.sealInline(imm, data)
	return frame{imm, bytes.Clone(good(t, b, err))}
}

// postFrame posts a SEND as it is.
func (c *Conn) postFrame(t testing.TB, f frame) {
	t.Helper()
	c.mu.Lock()
	defer c.unlock()
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.SendImm(seq, flags, f.imm)
	b.Inline(f.body)
	if err := b.Submit(); err != nil {
		t.Error(err)
	}
	c.posted(request{}, flags)
}

// TestSealedHostile checks that nothing which somebody has changed between the sides reaches the program, nor what
// comes after it.
func TestSealedHostile(t *testing.T) {
	t.Parallel()
	change := func(f frame, to func(f *frame)) []frame {
		f.body = bytes.Clone(f.body)
		to(&f)
		return []frame{f}
	}
	cut := func(a frame, n int) []frame { return change(a, func(f *frame) { f.body = f.body[:n] }) }
	end := frame{packImm(kindEnd, credits{}, 0), make([]byte, farewellLen)}
	for name, attack := range map[string]func(a, b frame) []frame{
		"bit of a message":    func(a, _ frame) []frame { return change(a, func(f *frame) { f.body[3] ^= 4 }) },
		"bit of a tag":        func(a, _ frame) []frame { return change(a, func(f *frame) { f.body[len(f.body)-1] ^= 1 }) },
		"kind":                func(a, _ frame) []frame { return change(a, func(f *frame) { f.imm ^= 1 << immKindShift }) },
		"credits":             func(a, _ frame) []frame { return change(a, func(f *frame) { f.imm ^= 1 << immCreditShift }) },
		"credits for replies": func(a, _ frame) []frame { return change(a, func(f *frame) { f.imm ^= 1 << immReplyShift }) },
		"number":              func(a, _ frame) []frame { return change(a, func(f *frame) { f.imm ^= 1 }) },
		"repeated":            func(a, _ frame) []frame { return []frame{a, a} },
		"reordered":           func(a, b frame) []frame { return []frame{b, a} },
		"dropped":             func(_, b frame) []frame { return []frame{b} },
		"short":               func(a, _ frame) []frame { return cut(a, len(a.body)-1) },
		"without a tag":       func(a, _ frame) []frame { return cut(a, tagLen-1) },
		"empty":               func(a, _ frame) []frame { return change(a, func(f *frame) { f.body = nil }) },
		"long":                func(a, _ frame) []frame { return change(a, func(f *frame) { f.body = append(f.body, 0) }) },
		"not sealed":          func(frame, frame) []frame { return []frame{{0, []byte("forged")}} },
		"end":                 func(frame, frame) []frame { return []frame{end} },
		"no message":          func(frame, frame) []frame { return []frame{{packImm(kindCredits, credits{1, 0}, 0), nil}} },
		"first":               func(frame, frame) []frame { return []frame{{packImm(kindSeal, credits{}, 0), nil}} },
	} {
		t.Run(name, func(t *testing.T) {
			c, s := sealedSides(t, Options{})
			ctx := bounded(t)
			if err := c.Send(ctx, []byte("before")); err != nil {
				t.Fatal(err)
			}
			a, b := c.sealFrame(t, kindMessage, 0, []byte("first")), c.sealFrame(t, kindMessage, 0, []byte("second"))
			for _, f := range attack(a, b) {
				c.postFrame(t, f)
			}
			if name == "repeated" {
				b = frame{}
			}
			c.postFrame(t, b)
			got := received(t, s)
			want := "before"
			if name == "repeated" {
				want = "before first"
			}
			if got != want {
				t.Errorf("%q was received, want %q", got, want)
			}
		})
	}
}

// received returns what arrives on a connection until it ends because something was forged.
func received(t *testing.T, c *Conn) string {
	t.Helper()
	var all []string
	for {
		m, err := c.Recv(bounded(t))
		if err == nil {
			all = append(all, string(m.Copy()))
			continue
		}
		for _, err := range []error{err, c.Err(), c.Send(bounded(t), nil)} {
			if !errors.Is(err, ErrForged) || !errors.Is(err, ErrDisconnected) || errors.Is(err, io.EOF) {
				t.Errorf("the error is %v", err)
			}
		}
		return strings.Join(all, " ")
	}
}

// TestSealedWrite checks that a WRITE with immediate data is no message of a sealed connection.
func TestSealedWrite(t *testing.T) {
	c, s := sealedSides(t, Options{})
	c.mu.Lock()
	seq, flags := c.next(true)
	b := c.qp.StartSend()
	b.WriteImm(seq, flags, 0, 0, 7)
	err := b.Submit()
	c.posted(request{}, flags)
	c.unlock()
	if err != nil {
		t.Fatal(err)
	}
	if got := received(t, s); got != "" {
		t.Errorf("%q was received", got)
	}
}

// TestSealedMemory checks that the program gets no long message whose memory was changed, and none after it, also when
// the peer has closed the connection.
func TestSealedMemory(t *testing.T) {
	t.Parallel()
	for _, at := range []int{0, 5000, 9999} {
		for _, ended := range []bool{false, true} {
			c, s := sealedSides(t, Options{})
			ctx := bounded(t)
			if err := c.Send(ctx, make([]byte, 10000)); err != nil {
				t.Fatal(err)
			}
			c.mu.Lock()
			for i := range c.windows {
				if w := &c.windows[i]; w.state == windowOffered {
					w.m.bytes[at] ^= 1
				}
			}
			c.unlock()
			if err := c.Send(ctx, []byte("after")); err != nil {
				t.Fatal(err)
			}
			if ended {
				c.postFrame(t, c.sealFrame(t, kindEnd, 0, c.farewell()))
			}
			if got := received(t, s); got != "" {
				t.Errorf("byte %d, ended %v: %q was received", at, ended, got)
			}
		}
	}
}

// spoil has what a side seals next of long messages differ from what the peer opens.
func (c *Conn) spoil(t testing.TB) {
	c.mu.Lock()
	defer c.unlock()
	s, err := newSealer(make([]byte, secretLen), maxMessage)
	c.seal.txLong = good(t, s, err)
}

// TestSealedReply checks long replies and calls that were changed.
func TestSealedReply(t *testing.T) {
	t.Parallel()
	long := make([]byte, 10000)
	t.Run("reply", func(t *testing.T) {
		c, s := sealedSides(t, Options{})
		s.spoil(t)
		served := make(chan error, 1)
		go func() { served <- s.ServeCalls(bounded(t), func([]byte) []byte { return long }) }()
		m, err := c.Call(bounded(t), nil)
		if !errors.Is(err, ErrForged) {
			t.Errorf("Call returns %d bytes, %v", m.Len(), err)
		}
		if err := <-served; !errors.Is(err, ErrDisconnected) {
			t.Errorf("the server returns %v", err)
		}
	})
	t.Run("call", func(t *testing.T) {
		c, s := sealedSides(t, Options{})
		c.spoil(t)
		served := make(chan error, 1)
		go func() {
			served <- s.Handle(bounded(t), func(context.Context, *Request) ([]byte, error) {
				t.Error("the handler is called")
				return nil, nil
			}, nil)
		}()
		if _, err := c.Call(bounded(t), long); !errors.Is(err, ErrDisconnected) {
			t.Errorf("Call returns %v", err)
		}
		if err := <-served; !errors.Is(err, ErrForged) {
			t.Errorf("Handle returns %v", err)
		}
	})
}

// TestSealedOffers checks that the connection ends if a peer with the keys sends offers that no honest one sends.
func TestSealedOffers(t *testing.T) {
	t.Parallel()
	offered := func(o offer, rest ...byte) []byte {
		var b [offerLen]byte
		o.put(&b)
		return append(b[:], rest...)
	}
	full := make([]byte, longSealLen)
	for name, b := range map[string][]byte{
		"not sealed":   offered(offer{length: 5000}),
		"short":        offered(offer{length: 5000}, full[1:]...),
		"long":         offered(offer{length: 5000}, append(full, 0)...),
		"no length":    offered(offer{}, full...),
		"no trailer":   offered(offer{kind: kindCallTrailer, length: 5000}, full...),
		"half of both": offered(offer{kind: kindCallTrailer, length: 5000}, 0, 0),
	} {
		c, s := sealedSides(t, Options{})
		c.postFrame(t, c.sealFrame(t, kindOffer, 0, b))
		if _, err := s.Recv(bounded(t)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: Recv returns %v", name, err)
		}
	}
	for name, k := range map[string]kind{"second first": kindSeal, "WRITE": kindWritten} {
		c, s := sealedSides(t, Options{})
		c.postFrame(t, c.sealFrame(t, k, 0, nil))
		if _, err := s.Recv(bounded(t)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: Recv returns %v", name, err)
		}
	}
}

// TestSealedOldPeer checks what both sides learn if one wants to seal and the other cannot.
func TestSealedOldPeer(t *testing.T) {
	server, client := tlsConfigs(t)
	const cannot = "uses Options.Seal and the "
	n := hostileNetwork(t)
	here, there := n.Machine(), n.Machine()
	refused := make(chan error, 1)
	var l *Listener
	served := make(chan error, 1)
	there.Run(func() {
		var err error
		l, err = Listen(":0", &ListenOptions{Options: Options{TLS: server, Seal: true},
			Refused: func(_ netip.AddrPort, err error) { refused <- err }})
		good(t, l, err)
		go func() { _, err := l.Accept(bounded(t)); served <- err }()
	})
	g := &guarded{addr: there.AddrPort(l.Addr().Port()).String()}
	h := g.dial(t, here)
	h.isTold(cannot + "client's")
	if err := <-refused; !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), cannot+"client's") {
		t.Errorf("refused because of %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	<-served // by Close

	h = &hostile{t: t, ctx: bounded(t)}
	var old *cm.Listener
	accepted := make(chan error, 1)
	there.Run(func() {
		var err error
		old, err = cm.Listen(":0", &cm.ListenOptions{Options: *h.options(tlsHello())})
		good(t, old, err)
		go func() { _, err := old.Accept(h.ctx); accepted <- err }()
	})
	here.Run(func() {
		_, err := Dial(bounded(t), there.AddrPort(old.Addr().Port()).String(), &Options{TLS: client, Seal: true})
		if !errors.Is(err, ErrUnauthenticated) || !strings.Contains(err.Error(), cannot+"server's") {
			t.Errorf("Dial returns %v", err)
		}
	})
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	h.isTold(cannot + "server's")
	h.close()
	if err := old.Close(); err != nil {
		t.Error(err)
	}
}

// isTold checks why the honest side has closed the connection.
func (h *hostile) isTold(why string) {
	h.t.Helper()
	k, _, b := h.recv()
	f, err := parseFarewell(b, defaultDepth)
	if k != kindEnd || err != nil || f.reason == nil || f.reason.Code != CodeUnauthenticated ||
		!strings.Contains(f.reason.Text, why) {
		h.t.Errorf("a SEND of kind %d, %+v, %v", k, f.reason, err)
	}
}

// TestSealedAgreement checks when messages are sealed, and that what decides it is in the digest that both sides prove.
func TestSealedAgreement(t *testing.T) {
	for _, c := range []struct {
		own    bool
		remote features
		want   bool
	}{
		{false, featureTLS, false},
		{false, featureTLS | featureCanSeal, false},
		{false, featureTLS | featureWantsSeal, false},
		{false, featureTLS | featureCanSeal | featureWantsSeal, true},
		{true, featureTLS | featureCanSeal, true},
	} {
		got, err := (&Conn{options: &Options{Seal: c.own}, remote: hello{features: c.remote}}).agreeSeal(client)
		if got != c.want || err != nil {
			t.Errorf("%+v: %v, %v", c, got, err)
		}
	}
	here, there := sealedSides(t, Options{})
	a, err := here.digest(server)
	good(t, a, err)
	b, err := there.digest(client)
	if !bytes.Equal(a, good(t, b, err)) {
		t.Error("the digests of the sides differ")
	}
	there.remote.raw[8] ^= byte(featureWantsSeal)
	if b, err = there.digest(client); bytes.Equal(a, good(t, b, err)) {
		t.Error("the digest does not depend on the features")
	}
}

// TestSealedHandshake checks that nothing which arrives between the handshake and the first sealed SEND is for the
// program.
func TestSealedHandshake(t *testing.T) {
	c := &Conn{seal: &seals{}}
	secret := make([]byte, secretLen)
	s, err := newSealer(secret, defaultEager)
	c.seal.rx = good(t, s, err)
	c.count = 1
	b := make([]byte, tagLen)
	s, err = newSealer(secret, defaultEager)
	if err := good(t, s, err).seal(packImm(kindSeal, credits{}, 0), b, 0); err != nil {
		t.Fatal(err)
	}
	wc := &uverbs.WC{Opcode: uverbs.WCRecv, Flags: uverbs.WCWithImm, Imm: packImm(kindSeal, credits{}, 0), ByteLen: tagLen}
	if n, err := c.openSend(wc, &memory{bytes: b}); n != 0 || err != nil || !c.seal.opening || c.seal.unread != 1 {
		t.Errorf("%d bytes, %v, %+v", n, err, c.seal)
	}
	here, _ := sealedSides(t, Options{})
	here.mu.Lock()
	here.seal.unread = 1
	here.mu.Unlock()
	if err := here.startSealing(bounded(t)); !errors.Is(err, ErrProtocol) {
		t.Errorf("a message before the first that is sealed: %v", err)
	}
}
