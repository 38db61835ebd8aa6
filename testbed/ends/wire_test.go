package ends_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A wire has the bytes of a version of the protocol, by name.
type wire map[string][]byte

// keptWire returns the bytes in a file.
func keptWire(t *testing.T, file string) wire {
	t.Helper()
	text, err := os.ReadFile("../../rdma/testdata/" + file)
	must(t, text, err)
	w := wire{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] == "#" {
			continue
		}
		b, err := hex.DecodeString(strings.Join(words[2:], ""))
		w[words[0]+" "+words[1]] = must(t, b, err)
	}
	return w
}

// frame returns a SEND, whose immediate data is in network byte order.
func (w wire) frame(name string) (imm uint32, body []byte) {
	b := w["frame "+name]
	return binary.BigEndian.Uint32(b), bytes.Clone(b[4:])
}

// A keptPeer speaks the protocol with bytes that are kept.
type keptPeer struct {
	t    *testing.T
	ctx  context.Context
	w    wire
	conn *cm.Conn
	mr   *uverbs.MR // receives of keptSize bytes, and then what is sent
}

const (
	keptReceives = 64
	keptSize     = 4096
	keptBody     = keptReceives * keptSize
	keptMemory   = keptBody + 1<<16
)

// keptPair returns a connection of package rdma whose peer has the given role and sends the given hello.
func keptPair(t *testing.T, w wire, role string, hello []byte) (*rdma.Conn, *keptPeer) {
	t.Helper()
	r := newRig(t)
	r.net.Allow(verbstest.ReceiveLate, verbstest.BadRequest, verbstest.CQCapacity, verbstest.Unsignaled)
	p := &keptPeer{t: t, ctx: bounded(t), w: w}
	var c *rdma.Conn
	if role == "client" {
		l := on(t, r.server, func() (*rdma.Listener, error) { return rdma.Listen(r.addr, nil) })
		p.conn = on(t, r.client, func() (*cm.Conn, error) { return cm.Dial(p.ctx, r.addr, p.options(hello)) })
		accepted, err := l.Accept(p.ctx)
		c = must(t, accepted, err)
		closeNow(t, l)
	} else {
		o := &cm.ListenOptions{Options: *p.options(hello)}
		l := on(t, r.server, func() (*cm.Listener, error) { return cm.Listen(r.addr, o) })
		c = on(t, r.client, func() (*rdma.Conn, error) { return rdma.Dial(p.ctx, r.addr, nil) })
		accepted, err := l.Accept(p.ctx)
		p.conn = must(t, accepted, err)
		closeNow(t, l)
	}
	t.Cleanup(func() {
		closeNow(t, p.conn)
		closeNow(t, p.mr)
		if err := c.Close(); err != nil && !errors.Is(err, rdma.ErrUndelivered) {
			t.Error(err)
		}
	})
	return c, p
}

// options returns how the peer connects. It allocates its memory and posts its receives.
func (p *keptPeer) options(hello []byte) *cm.Options {
	return &cm.Options{
		PrivateData: hello,
		QP:          uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: keptReceives},
		Setup: func(c *cm.Conn) (err error) {
			if p.mr, err = c.AllocRead(keptMemory); err != nil {
				return err
			}
			for i := range keptReceives {
				if err := c.PostRecv(uint64(i), p.mr.SGE(i*keptSize, keptSize)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func closeNow(t *testing.T, c io.Closer) {
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
	copy(p.mr.Bytes()[keptBody:], body)
	wr := uverbs.SendWR{Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled, Imm: imm}
	if len(body) > 0 {
		wr.SGL = []uverbs.SGE{p.mr.SGE(keptBody, len(body))}
	}
	if _, err := p.conn.QP().PostSend(wr); err != nil {
		p.t.Fatalf("%s is not sent: %v", name, err)
	}
	if wc, err := p.conn.SendComp(p.ctx); err != nil || wc.Err() != nil {
		p.t.Fatalf("%s is not sent: %v", name, errors.Join(err, wc.Err()))
	}
}

// receives checks that the next frame is one that is kept, but for credits, with the given number.
func (p *keptPeer) receives(name string, number uint32) (body []byte) {
	p.t.Helper()
	const creditsOf = 0x0ffffc00
	wc, err := p.conn.RecvComp(p.ctx)
	must(p.t, wc, err)
	want, kept := p.w.frame(name)
	want = want&^0x3ff | number
	body = bytes.Clone(p.mr.Bytes()[wc.WRID*keptSize:][:wc.ByteLen])
	if wc.Imm&^creditsOf != want&^creditsOf || len(body) != len(kept) {
		p.t.Fatalf("%08x with %d bytes has come, want %s: %08x with %d", wc.Imm, len(body), name, want, len(kept))
	}
	if err := p.conn.PostRecv(wc.WRID, p.mr.SGE(int(wc.WRID)*keptSize, keptSize)); err != nil {
		p.t.Fatal(err)
	}
	return body
}

// TestWireKept has package rdma talk to a peer that sends what is kept, in both roles: as it is, and as a later version
// of which the hello has more versions, features and fields. Each kind of frame comes in each direction.
func TestWireKept(t *testing.T) {
	w := keptWire(t, "wire1.txt")
	for _, role := range []string{"client", "server"} {
		hello := w["hello "+role]
		for name, b := range map[string][]byte{role: hello, "later " + role: laterVersion(hello)} {
			t.Run(name, func(t *testing.T) {
				c, p := keptPair(t, w, role, b)
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

const helloLen = 24 // without fields and private data

// laterVersion returns a hello with more versions, features and fields.
func laterVersion(hello []byte) []byte {
	fields := []byte{200, 4, 1, 2, 3, 4}
	b := append(bytes.Clone(hello[:helloLen]), fields...)
	b[5], b[6] = 255, b[6]+byte(len(fields))
	b[9], b[10], b[11], b[15] = 255, 255, 255, 255
	return append(b, hello[helloLen:]...)
}

func (p *keptPeer) messages(t *testing.T, c *rdma.Conn) {
	p.sends("message", nil)
	m, err := c.Recv(p.ctx)
	if got := string(must(t, m, err).Copy()); got != "hi" {
		t.Errorf("%q is received", got)
	}
	if err := c.Send(p.ctx, []byte("HI")); err != nil {
		t.Fatal(err)
	}
	if body := p.receives("message", 0); string(body) != "HI" {
		t.Errorf("%q has come", body)
	}
}

func (p *keptPeer) offers(t *testing.T, c *rdma.Conn) {
	le := binary.LittleEndian
	const n = 5000
	offered := p.mr.Bytes()[keptBody+100:][:n]
	copy(offered, bytes.Repeat([]byte("offered "), n/8))
	p.sends("offer", func(body []byte) {
		le.PutUint32(body[4:], p.mr.RKey())
		le.PutUint64(body[8:], p.mr.Addr()+keptBody+100)
	})
	m, err := c.Recv(p.ctx)
	if got := must(t, m, err).Copy(); !bytes.Equal(got, offered) {
		t.Errorf("%d other bytes are received", len(got))
	}
	p.receives("taken", 0)

	long := bytes.Repeat([]byte("a long message, "), 1000)
	if err := c.Send(p.ctx, long); err != nil {
		t.Fatal(err)
	}
	body := p.receives("offer", 0)
	key, addr, length := le.Uint32(body[4:]), le.Uint64(body[8:]), int(le.Uint64(body[16:]))
	if err := p.conn.PostRead(0, uverbs.Signaled, addr, key, p.mr.SGE(keptBody, length)); err != nil {
		t.Fatal(err)
	}
	if wc, err := p.conn.SendComp(p.ctx); err != nil || wc.Err() != nil {
		t.Fatal(err, wc.Err())
	}
	if !bytes.Equal(p.mr.Bytes()[keptBody:][:length], long) {
		t.Error("other bytes are offered")
	}
	p.sends("taken", nil)
}

func (p *keptPeer) calls(t *testing.T, c *rdma.Conn) {
	p.sends("call", nil) // with a credit for the reply
	m, err := c.Recv(p.ctx)
	if err := must(t, m, err).Reply(p.ctx, []byte("YES")); err != nil || !m.IsCall() || string(m.Copy()) != "ask" {
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

func (p *keptPeer) cancels(t *testing.T, c *rdma.Conn) {
	p.sends("call", nil)
	m, err := c.Recv(p.ctx)
	ctx := must(t, m, err).Context()
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

// ends has package rdma close the connection.
func (p *keptPeer) ends(t *testing.T, c *rdma.Conn) {
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
	w := keptWire(t, "wire1.txt")
	c, p := keptPair(t, w, "client", w["hello client"])
	p.sends("end", nil)
	if _, err := c.Recv(p.ctx); err != io.EOF {
		t.Errorf("Recv returns %v", err)
	}
	c, p = keptPair(t, w, "server", w["hello server"])
	p.sends("reason", nil)
	var end *rdma.CloseError
	if _, err := c.Recv(p.ctx); !errors.As(err, &end) || *end != (rdma.CloseError{Code: 7, Text: "bye", Remote: true}) {
		t.Errorf("Recv returns %v", err)
	}
}

// TestWireTrailers has package rdma talk to a peer with trailers, which sends what is kept.
func TestWireTrailers(t *testing.T) {
	w := keptWire(t, "wire1.txt")
	maps.Copy(w, keptWire(t, "trailers1.txt"))
	c, p := keptPair(t, w, "client", w["hello client"])
	seen, reply := make(chan string), make(chan struct{})
	go func() {
		// The end of the test ends the connection.
		_ = c.Handle(p.ctx, func(ctx context.Context, r *rdma.Request) ([]byte, error) {
			deadline, ok := ctx.Deadline()
			if !ok || time.Until(deadline) > time.Hour {
				return nil, errors.New("another deadline")
			}
			seen <- fmt.Sprintf("%.3s %d %v", r.Bytes(), r.Len(), r.Metadata())
			<-reply
			return nil, &rdma.CallError{Code: 105, Text: "no such key"}
		}, nil)
	}()
	replyCredit := func() { // one for each error that comes
		if _, err := p.conn.QP().PostSend(uverbs.SendWR{Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled,
			Imm: 5<<28 | 1<<10}); err != nil {
			t.Fatal(err)
		}
		if wc, err := p.conn.SendComp(p.ctx); err != nil || wc.Err() != nil {
			t.Fatal(err, wc.Err())
		}
	}
	for _, f := range []struct{ name, want string }{
		{"call", "ask 3 map[e: tenant:blue]"}, {"deadline", "ask 3 map[]"}, {"offer", "off 5000 map[e: tenant:blue]"}} {
		replyCredit()
		copy(p.mr.Bytes()[keptBody+100:], "offered")
		p.sends(f.name, func(body []byte) {
			if f.name == "offer" {
				binary.LittleEndian.PutUint32(body[4:], p.mr.RKey())
				binary.LittleEndian.PutUint64(body[8:], p.mr.Addr()+keptBody+100)
			}
		})
		if got := <-seen; got != f.want {
			t.Errorf("%s: the handler gets %q, want %q", f.name, got, f.want)
		}
		if f.name == "offer" {
			p.receives("taken", 0)
		}
		reply <- struct{}{}
		if body := p.receives("error", 3); string(body) != string(w["frame error"][4:]) {
			t.Errorf("%s: the error is %q", f.name, body)
		}
	}
	p.calledWith(t, c)
}

// calledWith has package rdma call with a deadline, and replies with an error.
func (p *keptPeer) calledWith(t *testing.T, c *rdma.Conn) {
	called := make(chan error, 1)
	go func() { _, err := c.Call(p.ctx, []byte("ask")); called <- err }()
	body := p.receives("deadline", 0)
	kept := bytes.Clone(p.w["frame deadline"][4:])
	copy(kept[6:14], body[6:14]) // the time that is left
	if left := binary.LittleEndian.Uint64(body[6:]); !bytes.Equal(body, kept) || left > uint64(time.Minute) {
		t.Errorf("%x is called", body)
	}
	imm, body := p.w.frame("error")
	p.w["frame error of call 0"] = append(binary.BigEndian.AppendUint32(nil, imm&^0x3ff), body...)
	p.sends("error of call 0", nil)
	var e *rdma.CallError
	if err := <-called; !errors.As(err, &e) || *e != (rdma.CallError{Code: 105, Text: "no such key"}) {
		t.Errorf("Call returns %v", err)
	}
}
