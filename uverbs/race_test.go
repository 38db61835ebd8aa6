package uverbs

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"testing"
)

// Close of each kind of object against everything that may run beside it: a
// call either does its work or says ErrClosed.
func TestCloseRaces(t *testing.T) {
	const rounds = 10
	for name, end := range map[string]func(*rig, *bundle){
		"each": func(_ *rig, b *bundle) {
			for _, f := range []func() error{b.ud.qp.Close, b.ud.ah.Close, b.ud.srq.Close, b.qp.Close, b.cq.Close, b.mr.Close, b.pd.Close} {
				for errors.Is(f(), ErrBusy) { // something is being made on it
				}
			}
		},
		"Context": func(r *rig, _ *bundle) { _ = r.c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				race(t, end)
			}
		})
	}
}

func race(t *testing.T, end func(*rig, *bundle)) {
	t.Helper()
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg, running sync.WaitGroup
	for name, call := range racers(ctx, r, b) {
		running.Add(1)
		wg.Go(func() {
			for i := 0; ; i++ {
				err := call()
				runtime.Gosched() // there are more goroutines than CPUs
				if i == 0 {
					running.Done()
				}
				switch {
				case errors.Is(err, ErrClosed), errors.Is(err, context.Canceled):
					return
				case err != nil && !errors.Is(err, ErrQueueFull) && !errors.Is(err, ErrState):
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	running.Wait()
	var closers sync.WaitGroup
	for range 2 {
		closers.Go(func() { end(r, b) })
	}
	closers.Wait()
	cancel() // for those that the context's own Close would end
	wg.Wait()
}

func racers(ctx context.Context, r *rig, b *bundle) map[string]func() error {
	first := true
	calls := racersUD(b)
	maps.Copy(calls, map[string]func() error{
		"PostSend": func() error {
			return second(b.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled, SGL: []SGE{{Addr: 1, Length: 1}}}))
		},
		"PostRecv": func() error { return second(b.qp.PostRecv(RecvWR{})) },
		"batch": func() error {
			s := b.qp.StartSend()
			s.Write(1, 0, 1, 1)
			return s.Submit()
		},
		"Poll":     func() error { return second(b.cq.Poll(make([]WC, 200))) },
		"PollWait": func() error { return second(b.cq.PollWait(ctx, make([]WC, 4))) },
		"Arm":      func() error { return b.cq.Arm(false) },
		"Resize":   func() error { return b.cq.Resize(256) },
		"Modify":   func() error { return b.qp.Modify(QPAttr{}, MaskMinRNRTimer) },
		"Query":    func() error { return second(b.qp.Query(MaskState)) },
		"RegMR": func() error {
			m, err := b.pd.RegMR(make([]byte, 8), 0)
			if err != nil {
				return err
			}
			return m.Close()
		},
		"SGE": func() error {
			if b.mr.SGE(0, 1).Length == badLength || ctx.Err() != nil {
				return ErrClosed
			}
			return nil
		},
		"NextEvent": func() error {
			if first { // let the others begin
				first = false
				return nil
			}
			return second(r.c.NextEvent(ctx))
		},
	})
	return calls
}

func racersUD(b *bundle) map[string]func() error {
	m := b.ud
	group := GID{0: 0xff, 15: 1}
	return map[string]func() error{
		"PostSend UD": func() error { return second(m.qp.PostSend(m.request())) },
		"batch UD": func() error {
			s := m.qp.StartSend()
			s.Send(1, 0)
			s.UDAddr(m.ah, 1, 1)
			return s.Submit()
		},
		"AH": func() error {
			ah, err := b.pd.CreateAH(somewhere)
			if err != nil {
				return err
			}
			return ah.Close()
		},
		"group": func() error {
			if err := m.qp.AttachMcast(group, 0); err != nil {
				return err
			}
			return m.qp.DetachMcast(group, 0)
		},
		"SRQ.PostRecv": func() error { return second(m.srq.PostRecv(RecvWR{})) },
		"SRQ.Modify":   func() error { return m.srq.Modify(SRQAttr{Limit: 1}, SRQMaskLimit) },
		"SRQ.Query":    func() error { return second(m.srq.Query()) },
	}
}
