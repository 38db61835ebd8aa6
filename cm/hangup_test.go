package cm

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// reason is what an id says after the end.
func (s *SyncID) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// count counts commands.
func (r *rig) count(name string) (n int) {
	for _, c := range r.Log() {
		if c == name {
			n++
		}
	}
	return n
}

var errOver = (&Event{Type: EventDisconnected, object: "the connection"}).Err()

// What the kernel says to the answer is told to those who wait, but for the
// EINVAL of a connection that it has let go of.
func TestHangUpFails(t *testing.T) {
	for errno, told := range map[unix.Errno]bool{unix.EINVAL: false, unix.ENOMEM: true} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			r := newRig(t)
			_, _, p := connection(t)
			r.Set(func() { r.Refuse["DISCONNECT"] = errno })
			p.ID.hangUp(EventDisconnected, errOver, 0)
			if err := p.reason(); errors.Is(err, errno) != told || state(t, p.ID) != uverbs.StateErr {
				t.Errorf("%v: %v, QP %v", errno, err, state(t, p.ID))
			}
			r.Set(func() { clear(r.Refuse) })
			// The id stays over, whoever asks.
			check(t, p.Migrate(newTalk(t).EventChannel))
			s := good(p.Sync())(t)
			is(t, "the id made synchronous once more", s.reason(), ErrDisconnected)
			check(t, s.Close())
		})
	}
}

// A QP of one goroutine is left alone, and so is the connection.
func TestHangUpSingleGoroutine(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	a := newSyncID(t, PSTCP)
	check(t, a.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
	check(t, a.ResolveRoute(limit(t), 0))
	cfg := small
	cfg.SingleGoroutine = true
	check(t, a.CreateQP(nil, cfg))
	meet(t, l, a)
	n := r.count("DISCONNECT")
	a.ID.hangUp(EventDisconnected, errOver, 0)
	if got := r.count("DISCONNECT"); got != n || state(t, a.ID) != uverbs.StateRTS {
		t.Errorf("%d commands, want %d; QP %v", got, n, state(t, a.ID))
	}
}

// The id gets another QP while the sends of the one that it had are waited for:
// that one is left alone.
func TestHangUpOtherQP(t *testing.T) {
	r := newRig(t)
	l, _, p := connection(t)
	other := ready(t, l)
	r.Hold(uint32(EventDisconnected)) // the peer's answer would be one more end
	q := r.loop().delay(p.QP().QPN())
	check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
	n := r.count("DISCONNECT")
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.ID.hangUp(EventDisconnected, errOver, time.Minute)
	}()
	until(t, "the peer is answered", func() bool { return r.count("DISCONNECT") > n })
	p.ID.mu.Lock()
	had := p.qp.Swap(other.QP())
	q.acknowledge()
	p.ID.mu.Unlock()
	<-done
	p.qp.Store(had)
	if s := state(t, other.ID); s != uverbs.StateInit {
		t.Errorf("the other QP is in %v", s)
	}
}

// A device that is gone is neither spoken to nor waited for, and that it does
// not answer is no news.
func TestHangUpWithoutDevice(t *testing.T) {
	for name, errno := range map[string]unix.Errno{"still open": 0, "gone": unix.EIO} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			_, a, p := connection(t)
			p.moment = time.Hour
			r.loop().delay(p.QP().QPN())
			check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
			n, k := r.count("DISCONNECT"), r.loop().k
			before := k.Count("MODIFY_QP")
			if errno != 0 {
				k.Set(func() { k.Refuse = map[string]unix.Errno{"MODIFY_QP": errno} })
			}
			r.RemoveDevice()
			until(t, "both QPs are flushed", func() bool { return k.Count("MODIFY_QP") >= before+2 })
			for _, s := range []*SyncID{a, p} {
				s.ID.mu.Lock() // the flush is through
				err := s.reason()
				s.ID.mu.Unlock()
				if want := "cm: use the connection: the device has been removed: close the id (EIO)"; err == nil || err.Error() != want {
					t.Errorf("%v; want %s", err, want)
				}
			}
			if got := r.count("DISCONNECT"); got != n {
				t.Errorf("%d commands to disconnect", got-n)
			}
			k.Set(func() { k.Refuse = nil })
		})
	}
}

// Sends have as long as the doc says.
func TestMoment(t *testing.T) {
	if m := newSync(nil).moment; m != 200*time.Millisecond {
		t.Errorf("%v", m)
	}
}
