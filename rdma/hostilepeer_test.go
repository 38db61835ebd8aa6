package rdma

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"

	_ "github.com/goverbs/goverbs/provider/all"
)

// A hostile is a peer that speaks the protocol by hand.
type hostile struct {
	t    testing.TB
	ctx  context.Context
	conn *cm.Conn
	mr   *uverbs.MR
}

// Parts of the hostile peer's memory.
const (
	hostileRecvs = 64 // receives of 4096 bytes
	hostileBody  = hostileRecvs * 4096
	hostileSize  = hostileBody + 1<<16
)

func good[T any](t testing.TB, v T, err error) T {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// honestHello is what a peer with default options says.
func honestHello() hello {
	return hello{versions: spoken, features: allFeatures, depth: defaultDepth, eager: defaultEager, offers: defaultOffers,
		maxMessage: defaultMaxMessage}
}

// options returns how the hostile peer connects. h gets its memory and posts its receives.
func (h *hostile) options(privateData []byte) *cm.Options {
	return &cm.Options{
		PrivateData: privateData,
		QP:          uverbs.QPConfig{MaxSendWR: 16, MaxRecvWR: hostileRecvs, MaxInline: 64},
		Setup: func(c *cm.Conn) (err error) {
			h.conn = c
			if h.mr, err = c.AllocRead(hostileSize); err != nil {
				return err
			}
			for i := range hostileRecvs {
				if err := c.PostRecv(uint64(i), h.mr.SGE(i*4096, 4096)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// listening returns the options of a listener whose connections have the options o.
func listening(o *Options) *ListenOptions {
	if o == nil {
		return nil
	}
	return &ListenOptions{Options: *o}
}

// hostilePair returns an honest connection and its hostile peer. The rules of package verbstest that the peer breaks
// are allowed.
func hostilePair(t testing.TB, o *Options, h hello) (*Conn, *hostile) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	n.Allow(verbstest.RemoteAccess, verbstest.ReceiveLate, verbstest.ReceiveLength, verbstest.BadRequest,
		verbstest.CQCapacity, verbstest.Unsignaled, verbstest.NotReleased)
	honest, other := n.Machine(), n.Machine()
	return hostileOn(t, honest, other, o, h)
}

func hostileOn(t testing.TB, honest, other *verbstest.Machine, o *Options, hi hello) (*Conn, *hostile) {
	t.Helper()
	return hostileTo(t, honest, other, listening(o), hi)
}

// hostileTo is hostileOn for the options of a listener.
func hostileTo(t testing.TB, honest, other *verbstest.Machine, o *ListenOptions, hi hello) (*Conn, *hostile) {
	t.Helper()
	ctx := bounded(t)
	var l *Listener
	honest.Run(func() {
		var err error
		l, err = Listen(":0", o)
		good(t, l, err)
	})
	accepted := make(chan *Conn, 1)
	honest.Run(func() {
		go func() {
			c, err := l.Accept(ctx)
			if err != nil {
				t.Error(err)
			}
			accepted <- c
		}()
	})
	h := &hostile{t: t, ctx: ctx}
	other.Run(func() {
		c, err := cm.Dial(ctx, honest.AddrPort(l.Addr().Port()).String(), h.options(hi.bytes()))
		h.conn = good(t, c, err)
	})
	c := <-accepted
	if err := l.Close(); err != nil || c == nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		h.close()
		mayLose(t, c.Close())
	})
	return c, h
}

// mayLose checks the error of Close in a test that has not received everything.
func mayLose(t testing.TB, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, ErrUndelivered) {
		t.Error(err)
	}
}

func (h *hostile) close() {
	if err := h.conn.Close(); err != nil {
		h.t.Error(err)
	}
	if err := h.mr.Close(); err != nil {
		h.t.Error(err)
	}
}

// post sends body with imm. It returns false if the connection has ended.
func (h *hostile) post(op uverbs.Opcode, imm uint32, body []byte) bool {
	copy(h.mr.Bytes()[hostileBody:], body)
	wr := uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled, Imm: imm}
	if len(body) > 0 {
		wr.SGL = []uverbs.SGE{h.mr.SGE(hostileBody, len(body))}
	}
	if _, err := h.conn.QP().PostSend(wr); err != nil {
		return false
	}
	_, err := h.conn.SendComp(h.ctx)
	return err == nil
}

func (h *hostile) send(k kind, messages, number int, body []byte) bool {
	return h.post(uverbs.OpSendImm, packImm(k, credits{messages: messages}, number), body)
}

// offer offers a message.
func (h *hostile) offer(o offer, number int) bool {
	var b [offerLen]byte
	o.put(&b)
	return h.send(kindOffer, 0, number, b[:])
}

// end sends the end.
func (h *hostile) end(f farewell) bool { return h.send(kindEnd, 0, 0, f.appendTo(nil)) }

// recv returns the next message of the honest side.
func (h *hostile) recv() (k kind, number int, body []byte) {
	h.t.Helper()
	wc, err := h.conn.RecvComp(h.ctx)
	good(h.t, wc, err)
	k, _, number = unpackImm(wc.Imm)
	return k, number, h.mr.Bytes()[wc.WRID*4096:][:wc.ByteLen]
}
