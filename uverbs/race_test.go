package uverbs

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestCloseRaces closes each kind of object while other goroutines make all calls that are allowed
// concurrently: each call must succeed or return ErrClosed.
func TestCloseRaces(t *testing.T) {
	const rounds = 10
	for name, c := range map[string]struct {
		end    func(*rig, *bundle)
		racers []func(context.Context, *rig, *bundle) map[string]func() error
	}{
		"each":     {closeInTurn, []racerSet{racersRC, racersUD}},
		"windows":  {closeInTurn, []racerSet{racersRC, racersWindows}},
		"draining": {closeInTurn, []racerSet{racersRC, racersDrain, racersWindows}},
		// Close of a parent is repeated until its children are closed.
		"any order": {closeAtOnce, []racerSet{racersRC, racersUD, racersWindows, racersDrain}},
		"Context": {func(r *rig, _ *bundle) { _ = r.c.Close() },
			[]racerSet{racersRC, racersUD, racersMake, racersAsk, racersWindows, racersDrain}},
	} {
		t.Run(name, func(t *testing.T) {
			for range rounds {
				raceEnd(t, c.end, c.racers)
			}
		})
	}
}

// A racerSet returns calls that are repeated until they return ErrClosed.
type racerSet = func(context.Context, *rig, *bundle) map[string]func() error

func closers(b *bundle) []func() error {
	return []func() error{b.ud.qp.Close, b.ud.ah.Close, b.ud.srq.Close, b.mw.Close, b.qp.Close, b.mw1.Close, b.cq.Close,
		b.mr.Close, b.pd.Close}
}

func closeInTurn(_ *rig, b *bundle) {
	for _, f := range closers(b) {
		untilClosed(f)
	}
}

func closeAtOnce(_ *rig, b *bundle) {
	var wg sync.WaitGroup
	for _, f := range closers(b) {
		wg.Go(func() { untilClosed(f) })
	}
	wg.Wait()
}

func untilClosed(f func() error) {
	for errors.Is(f(), ErrBusy) { // an object is being created on it
		runtime.Gosched()
	}
}

func raceEnd(t *testing.T, end func(*rig, *bundle), sets []racerSet) {
	t.Helper()
	r := newRig(t)
	r.pageable()
	b := r.bundle(t, false).withWindows(t)
	b.ud = r.meeting(t, b, false)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var wg, running sync.WaitGroup
	calls := map[string]func() error{}
	for _, set := range sets {
		maps.Copy(calls, set(ctx, r, b))
	}
	for name, call := range calls {
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
				case err != nil && !errors.Is(err, ErrQueueFull) && !errors.Is(err, ErrState) && !errors.Is(err, ErrRange) &&
					!errors.Is(err, ErrCQOverrun): // raised by racersAsk
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
	cancel() // for calls that only Close of the Context would end
	wg.Wait()
}

func racersRC(ctx context.Context, r *rig, b *bundle) map[string]func() error {
	first := true
	return map[string]func() error{
		"PostSend": func() error {
			return second(b.qp.PostSend(SendWR{Opcode: OpSend, Flags: Signaled, SGL: []SGE{b.mr.SGE(0, 1)}}))
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
		"Modify": func() error {
			err := b.qp.Modify(QPAttr{}, MaskMinRNRTimer)
			if errors.Is(err, ErrInvalid) && b.qp.State() == StateErr { // Drain has moved it there
				return nil
			}
			return err
		},
		"Query": func() error { return second(b.qp.Query(MaskState)) },
		"RegMR": func() error {
			m, err := b.pd.RegMR(make([]byte, 8), 0)
			if err != nil {
				return err
			}
			return m.Close()
		},
		"Rereg": func() error { return b.mr.Rereg(ReregAccess, nil, nil, LocalWrite) },
		"SGE": func() error {
			if b.mr.SGE(0, 1).Length == badLength || ctx.Err() != nil {
				return ErrClosed
			}
			return nil
		},
		"NextEvent": func() error {
			if first { // lets the other calls start
				first = false
				return nil
			}
			return second(r.c.NextEvent(ctx))
		},
	}
}

// racersWindows returns calls that bind, create and close windows. Windows of type 2 are closed
// with the QP.
func racersWindows(_ context.Context, _ *rig, b *bundle) map[string]func() error {
	all := MWRange{MR: b.mr, Len: 8, Access: RemoteRead}
	return map[string]func() error{
		"MW.Bind": func() error { return b.mw1.Bind(b.qp, 1, Signaled, all) },
		"OpBindMW": func() error {
			return second(b.qp.PostSend(SendWR{Opcode: OpBindMW, Flags: Signaled,
				Bind: &MWBind{MW: b.mw, RKey: 1, MWRange: all}}))
		},
		"batch of binds": func() error {
			s := b.qp.StartSend()
			s.BindMW(1, 0, b.mw, 2, all)
			s.BindMW(1, 0, b.mw1, 2, all)
			return s.Submit()
		},
		"MW": func() error {
			w, err := b.pd.AllocMW(MWType2)
			if err != nil {
				return err
			}
			bound := second(b.qp.PostSend(SendWR{Opcode: OpBindMW, Bind: &MWBind{MW: w, RKey: 1, MWRange: all}}))
			return errors.Join(w.Close(), bound)
		},
		"AdviseMR": func() error {
			m, err := b.pd.Alloc(4096, LocalWrite|OnDemand)
			if err != nil {
				return err
			}
			return errors.Join(b.pd.AdviseMR(AdvicePrefetch, AdviseFlush, MRRange{m, 0, 4096}), m.Close())
		},
	}
}

// racersDrain returns calls that drain the QP. As other goroutines post to it, only Close ends
// them.
func racersDrain(ctx context.Context, _ *rig, b *bundle) map[string]func() error {
	drain := func() func() error {
		first := true
		return func() error {
			if first { // lets the other calls start
				first = false
				return nil
			}
			return b.qp.Drain(ctx)
		}
	}
	return map[string]func() error{"Drain": drain(), "second Drain": drain()}
}

func racersUD(_ context.Context, _ *rig, b *bundle) map[string]func() error {
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
		"SRQ.PostRecv":    func() error { return second(m.srq.PostRecv(RecvWR{})) },
		"SRQ.Modify":      func() error { return m.srq.Modify(SRQAttr{Limit: 1}, SRQMaskLimit) },
		"SRQ.Modify size": func() error { return m.srq.Modify(SRQAttr{MaxWR: 70}, SRQMaskMaxWR) },
		"SRQ.Query":       func() error { return second(m.srq.Query()) },
	}
}

// racersMake returns calls that create objects while the Context is being closed. A failed call
// must leave nothing.
func racersMake(_ context.Context, r *rig, b *bundle) map[string]func() error {
	return map[string]func() error{
		"AllocPD":           func() error { return made(r.c.AllocPD()) },
		"CreateCQ":          func() error { return made(r.c.CreateCQ(CQConfig{Entries: 4})) },
		"CreateCompChannel": func() error { return made(r.c.CreateCompChannel()) },
		"Alloc":             func() error { return made(b.pd.Alloc(4096, LocalWrite)) },
		"CreateSRQ":         func() error { return made(b.pd.CreateSRQ(SRQConfig{MaxWR: 4})) },
		"CreateQP": func() error {
			q, err := b.pd.CreateQP(QPConfig{Type: UD, SendCQ: b.cq, MaxSendWR: 4})
			if err != nil {
				return err
			}
			return errors.Join(q.Ready(), q.Close())
		},
	}
}

// made closes an object that was created.
func made[T interface{ Close() error }](v T, err error) error {
	if err != nil {
		return err
	}
	return v.Close()
}

// racersAsk returns queries, and calls that raise events.
func racersAsk(ctx context.Context, r *rig, b *bundle) map[string]func() error {
	users := []uint64{r.k.UserHandle(b.qp.handle), r.k.UserHandle(b.cq.handle), r.k.UserHandle(b.ud.srq.handle)}
	types := []EventType{EventQPFatal, EventCQErr, EventSRQLimitReached}
	n := 0
	return map[string]func() error{
		"QueryDevice": func() error { return second(r.c.QueryDevice()) },
		"QueryPort":   func() error { return second(r.c.QueryPort(1)) },
		"GIDs":        func() error { return second(r.c.GIDs(1)) },
		"Endpoint":    func() error { return second(b.ud.qp.Endpoint()) },
		"event": func() error {
			n++
			if r.k.Async(users[n%3], uint32(types[n%3])) != nil {
				return ErrClosed // the event file is closed
			}
			return ctx.Err()
		},
		"reset": func() error {
			b.ud.qp.SendsOutstanding()
			if err := b.ud.qp.Modify(QPAttr{State: StateReset}, MaskState); err != nil {
				return err
			}
			return b.ud.qp.Ready()
		},
	}
}

// A retirer is an object whose resources f releases.
type retirer struct {
	lifecycle
	f func() error
}

func (r retirer) retire() error { return r.f() }

// TestContextCloseAwaitsObjects checks that Close of a Context waits for a Close of an object that
// has begun: otherwise it would fail with ErrBusy, or close the device before the object's rings
// are retired.
func TestContextCloseAwaitsObjects(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	retiring, goOn := make(chan struct{}), make(chan struct{})
	b.qp.life = retirer{b.qp, func() error {
		close(retiring)
		<-goOn
		return b.qp.retire()
	}}
	first, second := make(chan error), make(chan error)
	go func() { first <- b.qp.Close() }()
	<-retiring
	go func() { second <- r.c.Close() }()
	select {
	case err := <-second:
		t.Errorf("the Context was closed under a QP that is closing: %v", err)
		close(goOn)
	case <-time.After(50 * time.Millisecond): // ten times as long as Close would take
		close(goOn)
		check(t, <-second)
	}
	check(t, <-first)
}
