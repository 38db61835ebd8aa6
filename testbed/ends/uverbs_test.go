package ends_test

import (
	"bufio"
	"context"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

var uverbsEnds = ends{
	"a closed object":    uverbsClosed,
	"a passed deadline":  func(t *testing.T) []result { return newVerbs(t).waits(t, passed) },
	"a canceled context": func(t *testing.T) []result { return newVerbs(t).waits(t, canceled) },
	"the peer's program has died": func(t *testing.T) []result {
		r, v := newRig(t), (*verbs)(nil)
		r.client.Run(func() { v = openVerbs(t) })
		here, there := tcp(t)
		go func() { // its kernel closes the connection, of which everything was read
			_, _ = bufio.NewReader(there).ReadString('\n')
			_ = there.Close()
		}()
		return []result{{"QP.Handshake", v.qp.Handshake(bounded(t), here), []string{"handshake", "QP"}}}
	},
	"the peer's machine has died": func(t *testing.T) []result {
		r := newRig(t)
		var v, peer *verbs
		r.client.Run(func() { v = openVerbs(t) })
		r.server.Run(func() { peer = openVerbs(t) })
		here, there := tcp(t)
		connected := make(chan error, 1)
		go func() { connected <- peer.qp.Handshake(bounded(t), there) }()
		must(t, 0, v.qp.Handshake(bounded(t), here))
		must(t, 0, <-connected)
		r.server.Kill()
		must(t, 0, second(v.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte("x")})))
		var wcs [1]uverbs.WC
		must(t, 0, second(v.cq.PollWait(bounded(t), wcs[:])))
		return []result{{"WC.Err", wcs[0].Err(), nil}}
	},
	"the device was removed": func(t *testing.T) []result {
		r, v := newRig(t), (*verbs)(nil)
		r.client.Run(func() { v = openVerbs(t) })
		waiting := make(chan error, 1)
		go func() { waiting <- second(v.cq.PollWait(bounded(t), make([]uverbs.WC, 1))) }()
		r.client.RemoveDevice()
		all := []result{{"CQ.PollWait that waits", <-waiting, []string{"wait", "mlx5_0"}}}
		for {
			e, err := v.ctx.NextEvent(bounded(t))
			if err != nil {
				all = append(all, result{"Context.NextEvent", err, []string{"wait", v.ctx.Name()}})
				break
			}
			t.Log(e.Type)
		}
		return append(all,
			result{"CQ.Poll", second(v.cq.Poll(make([]uverbs.WC, 1))), nil},
			result{"CQ.PollWait", second(v.cq.PollWait(bounded(t), make([]uverbs.WC, 1))), []string{"wait", "CQ"}},
			result{"CQ.WaitEvent", v.cq.WaitEvent(bounded(t)), []string{"wait", "CQ"}},
			result{"QP.PostSend", second(v.qp.PostSend(uverbs.SendWR{})), nil},
			result{"QP.PostRecv", second(v.qp.PostRecv(uverbs.RecvWR{})), nil},
			result{"Context.AllocPD", second(v.ctx.AllocPD()), []string{"PD", v.ctx.Name()}},
			result{"Context.QueryPort", second(v.ctx.QueryPort(1)), []string{"port", v.ctx.Name()}})
	},
}

// verbs are objects of an open device.
type verbs struct {
	ctx *uverbs.Context
	pd  *uverbs.PD
	mr  *uverbs.MR
	cq  *uverbs.CQ
	qp  *uverbs.QP
}

// openVerbs opens the device of the goroutine's machine.
func openVerbs(t *testing.T) *verbs {
	v := &verbs{}
	ctx, err := uverbs.Open("")
	v.ctx = must(t, ctx, err)
	closeLater(t, ctx)
	v.pd, err = v.ctx.AllocPD()
	must(t, 0, err)
	v.mr, err = v.pd.Alloc(4096, uverbs.LocalWrite)
	must(t, 0, err)
	v.cq, err = v.ctx.CreateCQ(uverbs.CQConfig{Entries: 8})
	must(t, 0, err)
	v.qp, err = v.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: v.cq, MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 16})
	must(t, 0, err)
	return v
}

func newVerbs(t *testing.T) (v *verbs) {
	newRig(t).client.Run(func() { v = openVerbs(t) })
	return v
}

// waits returns the errors of calls that wait.
func (v *verbs) waits(t *testing.T, begin func(*testing.T) context.Context) []result {
	here, _ := tcp(t) // the peer does not reply
	cq := []string{"wait", "CQ"}
	return []result{
		{"CQ.Wait", v.cq.Wait(begin(t)), cq},
		{"CQ.PollWait", second(v.cq.PollWait(begin(t), make([]uverbs.WC, 1))), cq},
		{"CQ.WaitEvent", v.cq.WaitEvent(begin(t)), cq},
		{"Context.NextEvent", second(v.ctx.NextEvent(begin(t))), []string{"wait", v.ctx.Name()}},
		{"QP.Handshake", v.qp.Handshake(begin(t), here), []string{"handshake", "QP"}},
	}
}

func uverbsClosed(t *testing.T) []result {
	v := newVerbs(t)
	waiting := make(chan error, 2)
	go func() { waiting <- v.cq.Wait(bounded(t)) }()
	go func() { waiting <- second(v.ctx.NextEvent(bounded(t))) }()
	must(t, 0, v.ctx.Close())
	wcs := make([]uverbs.WC, 1)
	return []result{
		{"CQ.Wait or Context.NextEvent that waits", <-waiting, []string{"wait"}},
		{"CQ.Wait or Context.NextEvent that waits", <-waiting, []string{"wait"}},
		{"CQ.Wait", v.cq.Wait(bounded(t)), []string{"wait", "CQ"}},
		{"CQ.PollWait", second(v.cq.PollWait(bounded(t), wcs)), []string{"wait", "CQ"}},
		{"CQ.Poll", second(v.cq.Poll(wcs)), nil},
		{"QP.PostSend", second(v.qp.PostSend(uverbs.SendWR{})), nil},
		{"QP.PostRecv", second(v.qp.PostRecv(uverbs.RecvWR{})), nil},
		{"QP.Modify", v.qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState), []string{"modify", "QP"}},
		{"QP.Drain", v.qp.Drain(bounded(t)), []string{"QP"}},
		{"PD.RegMR", second(v.pd.RegMR(make([]byte, 1), 0)), []string{"create MR", v.ctx.Name()}},
		{"Context.AllocPD", second(v.ctx.AllocPD()), []string{"PD", v.ctx.Name()}},
		{"Context.QueryPort", second(v.ctx.QueryPort(1)), []string{"port", v.ctx.Name()}},
		{"Context.NextEvent", second(v.ctx.NextEvent(bounded(t))), []string{"wait", v.ctx.Name()}},
	}
}
