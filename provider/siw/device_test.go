//go:build device

package siw_test

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	_ "github.com/goverbs/goverbs/provider/siw"
	"github.com/goverbs/goverbs/uverbs"
)

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// TestDeviceConformance runs the suite. rdma_cm connects no QP to itself, so receives are posted to the QP of the other
// end, whose completions are in the same CQ.
func TestDeviceConformance(t *testing.T) { providertest.RunIWARP(t, newRig) }

// TestDeviceFlush checks that requests complete which are posted after the peer has gone, and after the move to ERR.
func TestDeviceFlush(t *testing.T) {
	e := connect(t)
	check(t, e.server.Close())
	qp, cq := e.client.QP(), e.cq
	<-e.client.Disconnected()
	for id := range uint64(3) {
		must(qp.PostRecv(uverbs.RecvWR{WRID: id}))(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	check(t, qp.Drain(ctx))
	must(qp.PostRecv(uverbs.RecvWR{WRID: 3}))(t)
	must(qp.PostSend(uverbs.SendWR{WRID: 4, Opcode: uverbs.OpSend}))(t)
	for got := map[uint64]bool{}; len(got) < 5; {
		var wcs [8]uverbs.WC
		for _, wc := range wcs[:must(cq.PollWait(ctx, wcs[:]))(t)] {
			if wc.Status != uverbs.WCWRFlushErr || got[wc.WRID] || wc.WRID > 4 {
				t.Errorf("completion %+v", wc)
			}
			got[wc.WRID] = true
		}
	}
}

// TestDeviceOnlyCM checks that a QP cannot be connected without rdma_cm.
func TestDeviceOnlyCM(t *testing.T) {
	e := connect(t)
	pd := e.client.PD()
	qp := must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: e.cq, MaxSendWR: 1}))(t)
	_, err := qp.Endpoint()
	errtest.Is(t, err, uverbs.ErrNotSupported)
	check(t, qp.Close())
}

// ends are the two ends of a connection, and the CQ of both.
type ends struct {
	client, server *cm.Conn
	cq             *uverbs.CQ
}

func connect(t *testing.T) *ends {
	t.Helper()
	e := new(ends)
	o := cm.Options{Prepare: func(c *cm.Conn, cfg *uverbs.QPConfig) (err error) {
		if e.cq == nil { // the client is prepared first
			e.cq, err = c.Verbs().CreateCQ(uverbs.CQConfig{Entries: providertest.Entries})
		}
		cfg.SendCQ, cfg.RecvCQ = e.cq, e.cq
		cfg.MaxSendWR, cfg.MaxSendSGE, cfg.MaxInline = providertest.MaxSendWR, providertest.MaxSGE, providertest.MaxInline
		cfg.MaxRecvWR, cfg.MaxRecvSGE = providertest.MaxRecvWR, providertest.MaxSGE
		return err
	}}
	l := must(cm.Listen(cmp.Or(os.Getenv("GOVERBS_ADDRESS"), "10.9.0.1")+":0", &cm.ListenOptions{Options: o}))(t)
	accepted := make(chan *cm.Conn, 1)
	go func() {
		c, err := l.Accept(context.Background())
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	e.client = must(cm.Dial(t.Context(), l.Addr().String(), &o))(t)
	e.server = <-accepted
	t.Cleanup(func() {
		check(t, e.client.Close())
		check(t, e.server.Close())
		check(t, e.cq.Close())
		check(t, l.Close())
	})
	return e
}

func newRig(t *testing.T) *providertest.Rig {
	e := connect(t)
	r := providertest.Between(t, e.client.QP(), e.server.QP(), e.cq)
	mr := must(e.client.PD().Alloc(64<<10, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead))(t)
	t.Cleanup(func() { check(t, mr.Close()) })
	r.Mem, r.Addr, r.LKey, r.RKey = mr.Bytes(), mr.Addr(), mr.LKey(), mr.RKey()
	return r
}
