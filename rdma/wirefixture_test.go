package rdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A wire has the bytes of a version of the protocol, by name.
type wire map[string][]byte

// wire1 returns the bytes of version 1.
func wire1(t *testing.T) wire {
	t.Helper()
	text, err := os.ReadFile("testdata/wire1.txt")
	good(t, text, err)
	w := wire{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		b, err := hex.DecodeString(strings.Join(words[2:], ""))
		w[words[0]+" "+words[1]] = good(t, b, err)
	}
	return w
}

// frame returns a SEND, whose immediate data is in network byte order.
func (w wire) frame(name string) (imm uint32, body []byte) {
	b := w["frame "+name]
	return binary.BigEndian.Uint32(b), bytes.Clone(b[4:])
}

// TestWireEncodes checks that this package sends the bytes that are kept.
func TestWireEncodes(t *testing.T) {
	imm := func(k kind, replies, number int, body string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, packImm(k, credits{replies: replies}, number)), body...)
	}
	var o [offerLen]byte
	(&offer{length: 5000}).put(&o)
	ofClient, ofServer := honestHello(), honestHello()
	ofClient.data = []byte("eve 1")
	ofServer.depth, ofServer.offers, ofServer.eager, ofServer.maxMessage = 64, 2, 8192, 1<<20
	ofServer.data = []byte("bob")
	token, err := Token{Addr: 0x1122334455667788, Len: 4096, Key: 0xdeadbeef, Rights: allRights}.MarshalBinary()
	want := wire{
		"hello client":  ofClient.bytes(),
		"hello server":  ofServer.bytes(),
		"frame message": imm(kindMessage, 0, 0, "hi"),
		"frame call":    imm(kindCall, 1, 3, "ask"),
		"frame reply":   imm(kindReply, 0, 0, "yes"),
		"frame offer":   imm(kindOffer, 0, 0, string(o[:])),
		"frame taken":   imm(kindTaken, 0, 0, ""),
		"frame credits": imm(kindCredits, 0, 1, ""),
		"frame end":     imm(kindEnd, 0, 0, string((&farewell{}).appendTo(nil))),
		"frame reason":  imm(kindEnd, 0, 0, string((&farewell{reason: &CloseError{Code: 7, Text: "bye"}}).appendTo(nil))),
		"frame cancel":  imm(kindCancel, 0, 3, ""),
		"token all":     good(t, token, err),
	}
	kept := wire1(t)
	if len(kept) != len(want) {
		t.Errorf("%d lines are kept, want %d", len(kept), len(want))
	}
	for name, b := range want {
		if !bytes.Equal(b, kept[name]) {
			t.Errorf("%s: %x is sent, want %x", name, b, kept[name])
		}
	}
}

// A keptPeer speaks the protocol with bytes that are kept.
type keptPeer struct {
	*hostile
	w wire
}

// keptPair returns a connection of this package whose peer has the given role and sends the given hello.
func keptPair(t *testing.T, w wire, peer role, hello []byte) (*Conn, *keptPeer) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.ReceiveLate, verbstest.BadRequest, verbstest.CQCapacity, verbstest.Unsignaled)
	here, there := n.Machine(), n.Machine()
	ctx := bounded(t)
	h := &hostile{t: t, ctx: ctx}
	conns := make(chan *Conn, 1)
	if peer == client {
		var l *Listener
		here.Run(func() {
			var err error
			l, err = Listen(":7471", nil)
			good(t, l, err)
			go func() {
				c, err := l.Accept(ctx)
				if err != nil {
					t.Error(err)
				}
				conns <- c
			}()
		})
		there.Run(func() {
			c, err := cm.Dial(ctx, here.AddrPort(7471).String(), h.options(hello))
			h.conn = good(t, c, err)
		})
		defer closing(t, l)
	} else {
		var l *cm.Listener
		there.Run(func() {
			var err error
			l, err = cm.Listen(":7471", &cm.ListenOptions{Options: *h.options(hello)})
			good(t, l, err)
		})
		here.Run(func() {
			go func() {
				c, err := Dial(ctx, there.AddrPort(7471).String(), nil)
				if err != nil {
					t.Error(err)
				}
				conns <- c
			}()
		})
		c, err := l.Accept(ctx)
		h.conn = good(t, c, err)
		defer closing(t, l)
	}
	c := <-conns
	if c == nil {
		t.FailNow()
	}
	t.Cleanup(func() {
		h.close()
		mayLose(t, c.Close())
	})
	return c, &keptPeer{h, w}
}

func closing(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// sends sends a frame as it is kept, but for changes of its body.
func (p *keptPeer) sends(name string, change func(body []byte)) {
	p.t.Helper()
	imm, body := p.w.frame(name)
	if change != nil {
		change(body)
	}
	if !p.post(uverbs.OpSendImm, imm, body) {
		p.t.Fatalf("%s is not sent", name)
	}
}

// receives checks that the next frame is one that is kept, but for credits, with the given number.
func (p *keptPeer) receives(name string, number uint32) (body []byte) {
	p.t.Helper()
	const creditsOf = 0x0ffffc00
	wc, err := p.conn.RecvComp(p.ctx)
	good(p.t, wc, err)
	want, kept := p.w.frame(name)
	want = want&^0x3ff | number
	body = bytes.Clone(p.mr.Bytes()[wc.WRID*4096:][:wc.ByteLen])
	if wc.Imm&^creditsOf != want&^creditsOf || len(body) != len(kept) {
		p.t.Fatalf("%08x with %d bytes has come, want %s: %08x with %d", wc.Imm, len(body), name, want, len(kept))
	}
	if err := p.conn.PostRecv(wc.WRID, p.mr.SGE(int(wc.WRID)*4096, 4096)); err != nil {
		p.t.Fatal(err)
	}
	return body
}

// TestWireKept has this package talk to a peer that sends what is kept, in both roles: as it is, and as a later version
// of which the hello has more versions, features and fields. Each kind of frame comes in each direction.
func TestWireKept(t *testing.T) {
	w := wire1(t)
	for _, peer := range []role{client, server} {
		hello, later := w["hello client"], "later client"
		if peer == server {
			hello, later = w["hello server"], "later server"
		}
		for name, b := range map[string][]byte{fmt.Sprint("peer ", peer): hello, later: laterVersion(hello)} {
			t.Run(name, func(t *testing.T) {
				c, p := keptPair(t, w, peer, b)
				if data := string(hello[helloLen:]); string(c.PrivateData()) != data {
					t.Errorf("the private data is %q, want %q", c.PrivateData(), data)
				}
				p.messages(t, c)
				p.offers(t, c)
				p.calls(t, c)
				p.cancels(t, c)
				p.ends(t, c)
			})
		}
	}
}

// laterVersion returns a hello with more versions, features and fields.
func laterVersion(hello []byte) []byte {
	fields := []byte{200, 4, 1, 2, 3, 4}
	b := append(bytes.Clone(hello[:helloLen]), fields...)
	b[5], b[6] = 255, b[6]+byte(len(fields))
	b[9], b[10], b[11], b[15] = 255, 255, 255, 255
	return append(b, hello[helloLen:]...)
}

func (p *keptPeer) messages(t *testing.T, c *Conn) {
	p.sends("message", nil)
	m, err := c.Recv(p.ctx)
	if got := string(good(t, m, err).Copy()); got != "hi" {
		t.Errorf("%q is received", got)
	}
	if err := c.Send(p.ctx, []byte("HI")); err != nil {
		t.Fatal(err)
	}
	if body := p.receives("message", 0); string(body) != "HI" {
		t.Errorf("%q has come", body)
	}
}

func (p *keptPeer) offers(t *testing.T, c *Conn) {
	le := binary.LittleEndian
	const n = 5000
	offered := p.mr.Bytes()[hostileBody+100:][:n]
	copy(offered, bytes.Repeat([]byte("offered "), n/8))
	p.sends("offer", func(body []byte) {
		le.PutUint32(body[4:], p.mr.RKey())
		le.PutUint64(body[8:], p.mr.Addr()+hostileBody+100)
	})
	m, err := c.Recv(p.ctx)
	if got := good(t, m, err).Copy(); !bytes.Equal(got, offered) {
		t.Errorf("%d other bytes are received", len(got))
	}
	p.receives("taken", 0)

	long := bytes.Repeat([]byte("a long message, "), 1000)
	if err := c.Send(p.ctx, long); err != nil {
		t.Fatal(err)
	}
	body := p.receives("offer", 0)
	key, addr, length := le.Uint32(body[4:]), le.Uint64(body[8:]), int(le.Uint64(body[16:]))
	if err := p.conn.PostRead(0, uverbs.Signaled, addr, key, p.mr.SGE(hostileBody, length)); err != nil {
		t.Fatal(err)
	}
	if wc, err := p.conn.SendComp(p.ctx); err != nil || wc.Err() != nil {
		t.Fatal(err, wc.Err())
	}
	if !bytes.Equal(p.mr.Bytes()[hostileBody:][:length], long) {
		t.Error("other bytes are offered")
	}
	p.sends("taken", nil)
}

func (p *keptPeer) calls(t *testing.T, c *Conn) {
	p.sends("call", nil) // with a credit for the reply
	m, err := c.Recv(p.ctx)
	if err := good(t, m, err).Reply(p.ctx, []byte("YES")); err != nil || !m.IsCall() || string(m.Copy()) != "ask" {
		t.Fatal(err)
	}
	if body := p.receives("reply", 3); string(body) != "YES" {
		t.Errorf("the reply is %q", body)
	}
	called := make(chan string, 1)
	go func() {
		m, err := c.Call(p.ctx, []byte("ASK"))
		if err != nil {
			t.Error(err)
		}
		called <- string(m.Copy())
	}()
	if body := p.receives("call", 0); string(body) != "ASK" {
		t.Errorf("%q is called", body)
	}
	p.sends("reply", nil)
	if reply := <-called; reply != "yes" {
		t.Errorf("the reply is %q", reply)
	}
}

func (p *keptPeer) cancels(t *testing.T, c *Conn) {
	p.sends("call", nil)
	m, err := c.Recv(p.ctx)
	ctx := good(t, m, err).Context()
	p.sends("cancel", nil)
	<-ctx.Done()
	p.receives("credits", 1)
	m.Release()
	if err := m.Reply(p.ctx, []byte("no!")); err != nil {
		t.Fatal(err)
	}
	p.receives("reply", 3)

	short, cancel := context.WithCancel(p.ctx)
	called := make(chan error, 1)
	go func() { _, err := c.Call(short, []byte("ask")); called <- err }()
	p.receives("call", 0)
	cancel()
	if err := <-called; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	p.receives("cancel", 0)
	p.sends("credits", nil)
	p.sends("reply", nil)
}

// ends has this package close the connection.
func (p *keptPeer) ends(t *testing.T, c *Conn) {
	closed := make(chan error, 1)
	go func() { closed <- c.CloseWithError(7, "bye") }()
	if body := p.receives("reason", 0); string(body[4:]) != string(p.w["frame reason"][8:]) {
		t.Errorf("the end is %x", body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestWireEnds has a peer end the connection with bytes that are kept.
func TestWireEnds(t *testing.T) {
	w := wire1(t)
	c, p := keptPair(t, w, client, w["hello client"])
	p.sends("end", nil)
	if _, err := c.Recv(p.ctx); err != io.EOF {
		t.Errorf("Recv returns %v", err)
	}
	c, p = keptPair(t, w, server, w["hello server"])
	p.sends("reason", nil)
	var end *CloseError
	if _, err := c.Recv(p.ctx); !errors.As(err, &end) || *end != (CloseError{Code: 7, Text: "bye", Remote: true}) {
		t.Errorf("Recv returns %v", err)
	}
}
