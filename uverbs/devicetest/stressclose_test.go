package devicetest

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A crowd has one object of each kind, in use: l.a and l.b are connected and share an SRQ, and
// u is a UD QP that sends to itself.
type crowd struct {
	*loop
	srq *uverbs.SRQ
	u   *station
	to  uverbs.AHAttr // from u to u
	ah  *uverbs.AH
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	l, srq := newSharedLoop(t, uverbs.SRQConfig{MaxWR: 100})
	u := newStation(t, l.pd, uverbs.GIDEntry{}, nil)
	to := must(u.qp.AHAttr(endpoint(t, u.qp)))(t)
	return &crowd{l, srq, u, to, must(l.pd.CreateAH(to))(t)}
}

// TestDeviceStressClose closes all objects, one by one in any order that is allowed, or all at
// once with the Context, while other goroutines call all of their methods. Each call must
// succeed or return a suitable error, and in the end ErrClosed.
func TestDeviceStressClose(t *testing.T) {
	for name, end := range map[string]func(*crowd) error{
		"objects": (*crowd).closeObjects,
		"Context": func(c *crowd) error { return c.dev.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				newCrowd(t).close(t, end)
			}
		})
	}
}

// close closes a crowd that is in use.
func (c *crowd) close(t *testing.T, end func(*crowd) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	var working, wg sync.WaitGroup
	for name, call := range c.calls(ctx) {
		working.Add(1)
		wg.Go(func() {
			err := call()
			working.Done()
			for fine(err) && !errors.Is(err, uverbs.ErrClosed) && ctx.Err() == nil {
				runtime.Gosched()
				err = call()
			}
			if !fine(err) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
	working.Wait()
	check(t, end(c))
	cancel() // NextEvent has no object that end closes
	wg.Wait()
	check(t, c.dev.Close())
}

// fine reports whether err is allowed for a call on an object that fails because others are
// closed.
func fine(err error) bool {
	for _, e := range []error{nil, uverbs.ErrQueueFull, uverbs.ErrState, uverbs.ErrRange, uverbs.ErrInvalid,
		uverbs.ErrNotSupported, uverbs.ErrClosed, context.Canceled} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (c *crowd) closeObjects() error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, f := range []func() error{c.a.qp.Close, c.b.qp.Close, c.u.qp.Close, c.ah.Close, c.srq.Close, c.a.cq.Close,
		c.b.cq.Close, c.u.cq.Close, c.a.mr.Close, c.b.mr.Close, c.u.mr.Close, c.pd.Close} {
		wg.Go(func() {
			err := f()
			for errors.Is(err, uverbs.ErrBusy) {
				runtime.Gosched()
				err = f()
			}
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, err)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// calls returns calls that are repeated until they return ErrClosed.
func (c *crowd) calls(ctx context.Context) map[string]func() error {
	group := uverbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 7, 14: 8, 15: 10}
	datagram := func() uverbs.SendWR {
		return uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: c.ah, QPN: c.u.qp.QPN(), QKey: qkey,
			SGL: []uverbs.SGE{c.u.mr.SGE(0, 8)}}
	}
	wait := func(cq *uverbs.CQ) func() error {
		return func() error {
			var wcs [16]uverbs.WC
			return second(cq.PollWait(ctx, wcs[:]))
		}
	}
	// Each receive has its own memory as long as it may be outstanding.
	receives := func(mr *uverbs.MR, size, n int) func() uverbs.RecvWR {
		next := 0
		return func() uverbs.RecvWR {
			next = (next + 1) % n
			return uverbs.RecvWR{SGL: []uverbs.SGE{mr.SGE(next*size, size)}}
		}
	}
	shared, datagrams := receives(c.b.mr, 64, 256), receives(c.u.mr, 64, 128)
	first := true
	return map[string]func() error{
		"send": func() error {
			return second(c.a.qp.PostSend(uverbs.SendWR{
				Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{c.a.mr.SGE(0, 8)}}))
		},
		"batch": func() error {
			b := c.b.qp.StartSend()
			b.Write(0, uverbs.Signaled, c.a.mr.Addr(), c.a.mr.RKey())
			b.Inline([]byte("race"))
			return b.Submit()
		},
		"datagram":  func() error { return second(c.u.qp.PostSend(datagram())) },
		"SRQ post":  func() error { return second(c.srq.PostRecv(shared())) },
		"UD post":   func() error { return second(c.u.qp.PostRecv(datagrams())) },
		"wait a":    wait(c.a.cq),
		"wait b":    wait(c.b.cq),
		"wait u":    wait(c.u.cq),
		"poll":      func() error { return second(c.a.cq.Poll(make([]uverbs.WC, 2))) },
		"resize":    func() error { return c.b.cq.Resize(300) },
		"SRQ size":  func() error { return c.srq.Modify(uverbs.SRQAttr{MaxWR: 130}, uverbs.SRQMaskMaxWR) },
		"SRQ limit": func() error { return c.srq.Modify(uverbs.SRQAttr{Limit: 5}, uverbs.SRQMaskLimit) },
		"SRQ query": func() error { return second(c.srq.Query()) },
		"modify":    func() error { return c.a.qp.Modify(uverbs.QPAttr{MinRNRTimer: 3}, uverbs.MaskMinRNRTimer) },
		"query":     func() error { return second(c.b.qp.Query(uverbs.MaskState)) },
		"reset": func() error {
			if err := c.u.qp.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
				return err
			}
			return c.u.qp.Ready()
		},
		"group": func() error {
			return errors.Join(c.u.qp.AttachMcast(group, 0), c.u.qp.DetachMcast(group, 0))
		},
		"MR": func() error {
			m, err := c.pd.RegMR(make([]byte, 64), uverbs.LocalWrite)
			if err != nil {
				return err
			}
			return m.Close()
		},
		"AH": func() error {
			ah, err := c.pd.CreateAH(c.to)
			if err != nil {
				return err
			}
			return ah.Close()
		},
		"event": func() error {
			if first { // lets the other calls start
				first = false
				return nil
			}
			return second(c.dev.NextEvent(ctx))
		},
	}
}
