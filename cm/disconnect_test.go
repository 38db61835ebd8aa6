package cm

import (
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// reason returns why the id has ended.
func (s *SyncID) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.eventErr()
}

// count returns the number of commands with this name.
func (r *rig) count(name string) (n int) {
	for _, c := range r.Log() {
		if c == name {
			n++
		}
	}
	return n
}

var errOver = (&Event{Type: EventDisconnected, subject: subject{name: "the connection"}}).Err()

// TestCompleteDisconnectFails checks that an error of the reply to the peer is reported to waiting calls, except
// EINVAL, which means that the kernel has released the connection.
func TestCompleteDisconnectFails(t *testing.T) {
	for errno, told := range map[unix.Errno]bool{unix.EINVAL: false, unix.ENOMEM: true} {
		t.Run(unix.ErrnoName(errno), func(t *testing.T) {
			r := newRig(t)
			_, _, p := connection(t)
			r.Set(func() { r.Refuse["DISCONNECT"] = errno })
			p.life.end(phaseEnded, errOver)
			p.ID.completeDisconnect(EventDisconnected, 0)
			if err := p.reason(); errors.Is(err, errno) != told || qpState(t, p.ID) != uverbs.StateErr {
				t.Errorf("%v: %v, QP %v", errno, err, qpState(t, p.ID))
			}
			r.Set(func() { clear(r.Refuse) })
			// The id has still ended after a migration.
			check(t, p.Migrate(newTalk(t).EventChannel))
			s := good(p.Sync())(t)
			is(t, "the id made synchronous once more", s.reason(), ErrDisconnected)
			check(t, s.Close())
		})
	}
}

// TestCompleteDisconnectSingleGoroutine checks that neither a QP with SingleGoroutine nor its connection is changed.
func TestCompleteDisconnectSingleGoroutine(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	a := newSyncID(t, PSTCP)
	check(t, a.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
	check(t, a.ResolveRoute(limit(t), 0))
	cfg := small
	cfg.SingleGoroutine = true
	check(t, a.CreateQP(nil, cfg))
	connectTo(t, l, a)
	n := r.count("DISCONNECT")
	a.life.end(phaseEnded, errOver)
	a.ID.completeDisconnect(EventDisconnected, 0)
	if got := r.count("DISCONNECT"); got != n || qpState(t, a.ID) != uverbs.StateRTS {
		t.Errorf("%d commands, want %d; QP %v", got, n, qpState(t, a.ID))
	}
}

// TestCompleteDisconnectOtherQP checks that another QP that is created on the id while the outstanding sends of the
// first complete is not changed.
func TestCompleteDisconnectOtherQP(t *testing.T) {
	r := newRig(t)
	l, _, p := connection(t)
	other := readyID(t, l)
	r.Hold(uint32(EventDisconnected)) // the peer's reply would end the connection again
	q := r.loop().delay(p.QP().QPN())
	check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
	n := r.count("DISCONNECT")
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.life.end(phaseEnded, errOver)
		p.ID.completeDisconnect(EventDisconnected, time.Minute)
	}()
	until(t, "the peer is answered", func() bool { return r.count("DISCONNECT") > n })
	p.ID.mu.Lock()
	had := p.qp.Swap(other.QP())
	q.acknowledge()
	p.ID.mu.Unlock()
	<-done
	p.qp.Store(had)
	if s := qpState(t, other.ID); s != uverbs.StateInit {
		t.Errorf("the other QP is in %v", s)
	}
}

// TestCompleteDisconnectWithoutDevice checks that completeDisconnect neither replies nor waits after a device removal,
// and that the missing reply is not an error.
func TestCompleteDisconnectWithoutDevice(t *testing.T) {
	for name, errno := range map[string]unix.Errno{"still open": 0, "gone": unix.EIO} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			_, a, p := connection(t)
			p.ackWait = time.Hour
			r.loop().delay(p.QP().QPN())
			check(t, p.PostSend(1, uverbs.Signaled, uverbs.SGE{Length: 1}))
			n, k := r.count("DISCONNECT"), r.loop().k
			before := k.Count("MODIFY_QP")
			if errno != 0 {
				k.Set(func() { k.Refuse = map[string]unix.Errno{"MODIFY_QP": errno, "QUERY_DEVICE": errno} })
			}
			r.RemoveDevice()
			until(t, "both QPs are flushed", func() bool { return k.Count("MODIFY_QP") >= before+2 })
			for _, s := range []*SyncID{a, p} {
				until(t, "the end of "+s.name(), func() bool { return s.Err() != nil })
				s.ID.mu.Lock() // the flush has finished
				err := s.reason()
				s.ID.mu.Unlock()
				if want := "cm: " + s.name() + ": the device has been removed: close the id (EIO)"; err == nil ||
					err.Error() != want {
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

// TestAckWait checks that outstanding sends may wait as long as the documentation says.
func TestAckWait(t *testing.T) {
	if m := newSync(nil).ackWait; m != 200*time.Millisecond {
		t.Errorf("%v", m)
	}
}
