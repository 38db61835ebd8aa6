package cm

import (
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
)

// stuck makes the kernel take its time with DESTROY_ID until release is called.
// entered hears of each that has begun.
func stuck(t testing.TB, r *rig) (entered <-chan struct{}, release func()) {
	t.Helper()
	in, hold := make(chan struct{}, 100), make(chan struct{})
	r.Set(func() {
		r.Before = func(name string) {
			if name == "DESTROY_ID" {
				in <- struct{}{}
				<-hold
			}
		}
	})
	release = func() {
		select {
		case <-hold:
		default:
			close(hold)
		}
	}
	t.Cleanup(release)
	return in, release
}

// A kernel that takes its time to refuse one listener's surplus holds up nobody:
// neither the pump, nor the reader of a channel.
func TestRefusalsHoldUpNobody(t *testing.T) {
	r := newRig(t)
	l, k := newSyncID(t, PSTCP), newTalk(t)
	check(t, l.Bind(at(here, 0)))
	check(t, l.Listen(1))
	first, second, other := ready(t, l), ready(t, l), newSyncID(t, PSTCP)
	i := k.id(PSTCP)
	entered, release := stuck(t, r)
	check(t, first.ID.Connect(nil))
	check(t, second.ID.Connect(nil))
	<-entered // one of the two is being refused
	check(t, other.ResolveAddr(limit(t), at(here, 0), l.LocalAddr(), 0))
	r.Inject(i.kernel, uapi.RdmaUcmEventResp{Uid: 1 << 60, Id: 1 << 30, Event: rdmacm.EventConnectRequest})
	k.quiet(i)
	<-entered
	release()
	until(t, "one is refused", func() bool {
		return (r.State(first.kernel) == "over") != (r.State(second.kernel) == "over")
	})
}

// The last id waits for the refusals, which are the process's to make.
func TestLastIDWaitsForRefusals(t *testing.T) {
	r := newRig(t)
	l := good(NewID(PSTCP))(t)
	check(t, l.Bind(at(here, 0)))
	p := l.pump
	hold, asked := make(chan struct{}), make(chan struct{})
	var begun atomic.Bool
	r.Set(func() {
		r.Before = func(name string) {
			if name == "DESTROY_ID" && begun.CompareAndSwap(false, true) {
				close(asked)
				<-hold
			}
		}
	})
	r.Inject(l.kernel, uapi.RdmaUcmEventResp{Uid: 1 << 60, Id: 1 << 30, Event: rdmacm.EventConnectRequest})
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	<-p.done // its reader has ended
	select {
	case err := <-closed:
		t.Errorf("closed (%v) before the refusal was through", err)
	default:
	}
	close(hold)
	check(t, <-closed)
}
