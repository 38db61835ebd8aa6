package uverbs

import (
	"errors"
	"testing"
)

// When the kernel tells that the device has failed, posts say so, and a waiter
// is woken. Whoever closes what there is gets no other error.
func TestDeviceGone(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	r.k.Set(func() { r.k.Raw = true })
	srq := good(b.pd.CreateSRQ(SRQConfig{MaxWR: 1}))(t)
	wq := good(b.pd.CreateWQ(WQConfig{CQ: b.cq, MaxWR: 1}))(t)
	check(t, wq.Ready())
	waited := make(chan error, 1)
	go func() { waited <- b.cq.Wait(t.Context()) }()
	until(func() bool { return b.cq.impl.(*fakeCQ).armings() > 0 })
	check(t, r.k.Async(1, uint32(EventDeviceFatal)))
	if e := good(r.c.NextEvent(t.Context()))(t); e.Type != EventDeviceFatal {
		t.Fatalf("event %v", e.Type)
	}
	check(t, <-waited) // there is something to tell
	for name, post := range map[string]func() error{
		"PostSend":           func() error { return second(b.qp.PostSend(SendWR{Opcode: OpSend})) },
		"PostRecv":           func() error { return second(b.qp.PostRecv(RecvWR{})) },
		"PostRecv in RESET":  func() error { return second(fresh.PostRecv(RecvWR{})) },
		"PostRecv of an SRQ": func() error { return second(srq.PostRecv(RecvWR{})) },
		"PostRecv of a WQ":   func() error { return second(wq.PostRecv(RecvWR{})) },
		"Poll":               func() error { return second(b.cq.Poll(make([]WC, 1))) },
		"an empty list":      func() error { return second(b.qp.PostSend()) },
		"PostSend in RTS now": func() error {
			check(t, fresh.Connect(good(b.qp.Endpoint())(t)))
			return second(fresh.PostSend(SendWR{}))
		},
		"a batch": func() error {
			s := b.qp.StartSend()
			s.Send(1, 0)
			return s.Submit()
		},
	} {
		if err := post(); !errors.Is(err, ErrDeviceGone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	late := good(r.c.CreateCQ(CQConfig{Entries: 1}))(t)
	if _, err := late.Poll(make([]WC, 1)); !errors.Is(err, ErrDeviceGone) {
		t.Errorf("Poll of a CQ that was made since: %v", err)
	}
	check(t, b.qp.Close())
	if _, err := b.qp.PostSend(SendWR{Opcode: OpSend}); !errors.Is(err, ErrClosed) {
		t.Errorf("PostSend after Close: %v", err)
	}
	check(t, r.c.Close())
}

// A hooked provider has something happen before a CQ is the API's.
type hooked struct {
	ProviderContext
	hook func()
}

func (h hooked) CreateCQ(cfg *CQConfig, create ProviderCommand) (ProviderCQ, ProviderReply, error) {
	q, r, err := h.ProviderContext.CreateCQ(cfg, create)
	h.hook()
	return q, r, err
}

// The device fails while a CQ is being made.
func TestDeviceGoneUnderCreateCQ(t *testing.T) {
	r := newRig(t)
	r.c.impl = hooked{r.c.impl, r.c.lose}
	cq := good(r.c.CreateCQ(CQConfig{Entries: 4}))(t)
	if _, err := cq.Poll(make([]WC, 1)); !errors.Is(err, ErrDeviceGone) {
		t.Error(err)
	}
}
