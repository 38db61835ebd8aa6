package uverbs

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestEntriesBesideResize calls Entries and Resize of a single-goroutine CQ concurrently.
func TestEntriesBesideResize(t *testing.T) {
	r := newRig(t)
	q := good(r.c.CreateCQ(CQConfig{Entries: 16, SingleGoroutine: true}))(t)
	var asking sync.WaitGroup
	asking.Go(func() {
		for range 100 {
			if n := q.Entries(); n < 16 {
				t.Errorf("%d entries", n)
			}
		}
	})
	for range 100 {
		check(t, q.Resize(32))
	}
	asking.Wait()
}

// TestOnIdleNil checks that OnIdle with nil removes the function.
func TestOnIdleNil(t *testing.T) {
	r := newRig(t)
	r.c.onIdle(func() error { return errors.New("the hook is still there") })
	r.c.onIdle(nil)
	check(t, good(r.c.AllocPD())(t).Close())
}

// TestQPConfigIsCopied checks that the caller may change its configuration after CreateQP.
func TestQPConfigIsCopied(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	gid := good(r.c.GIDs(1))(t)[2]
	qp := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, GID: &gid}))(t)
	want := gid
	gid = GIDEntry{}
	if got := *qp.cfg.GID; got != want {
		t.Errorf("the QP's GID is %+v, want %+v", got, want)
	}
}

func TestNoEventsIsInvalid(t *testing.T) {
	r := newRig(t)
	q := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	if err := q.Arm(false); !errors.Is(err, ErrInvalid) {
		t.Errorf("Arm: %v, want ErrInvalid", err)
	}
}

// TestBindBesideMRCommand checks that a post that binds a window does not wait for a command on the
// window's MR.
func TestBindBesideMRCommand(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	m := good(b.pd.Alloc(4096, LocalWrite|MWBindAccess))(t)
	w := good(b.pd.AllocMW(MWType2))(t)
	m.reg.mu.Lock() // as Close and Rereg hold it during their command
	defer m.reg.mu.Unlock()
	posted := make(chan error, 1)
	go func() {
		posted <- second(b.qp.PostSend(SendWR{Opcode: OpBindMW,
			Bind: &MWBind{MW: w, RKey: IncRKey(w.RKey()), MWRange: MWRange{MR: m, Len: 8}}}))
	}()
	select {
	case err := <-posted:
		check(t, err)
	case <-time.After(10 * time.Second):
		t.Error("the post waits for the MR")
	}
}

// CQ.Entries may be called concurrently with Resize of a single-goroutine CQ, which has no lock, so
// the field must be atomic.
var _ *atomic.Int64 = &new(CQ).entries
