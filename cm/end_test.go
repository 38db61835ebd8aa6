package cm

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// rejectLate rejects an established connection, as a peer does that was closed before it was notified.
func (r *rig) rejectLate(i *ID) {
	r.Inject(i.kernelID, uapi.RdmaUcmEventResp{Uid: i.uid, Id: i.kernelID, Event: rdmacm.EventRejected,
		Status: uint32(RejectTimeout)})
}

// endsWith checks that the connection ends with this error.
func endsWith(t testing.TB, s *SyncID, want error) {
	t.Helper()
	select {
	case <-s.Disconnected():
		is(t, "a wait", second(s.GetRequest(limit(t))), want)
	case <-limit(t).Done():
		t.Error("the connection does not end")
	}
}

// TestLateRejection checks that a rejection after the acceptance ends the connection: one that the program has
// confirmed for its own QP, before or after the rejection has arrived, and one that was established on an event
// channel.
func TestLateRejection(t *testing.T) {
	for name, stand := range map[string]func(testing.TB, *rig) *SyncID{
		"confirmed": func(t testing.TB, r *rig) *SyncID {
			s := respondedID(t)
			check(t, s.Establish())
			r.rejectLate(s.ID)
			return s
		},
		"confirmed after it": func(t testing.TB, r *rig) *SyncID {
			s := respondedID(t)
			r.rejectLate(s.ID)
			waitQueued(t, s, 1)
			check(t, s.Establish())
			return s
		},
		"on a channel": func(t testing.TB, r *rig) *SyncID {
			k := newTalk(t)
			a, _ := k.pair()
			s := closing(t, good(a.Sync())(t))
			r.rejectLate(a)
			return s
		},
		"waits in a channel": func(t testing.TB, r *rig) *SyncID {
			_, a, _ := connection(t)
			k := newTalk(t)
			check(t, a.Migrate(k.EventChannel))
			r.rejectLate(a.ID)
			return closing(t, good(a.ID.Sync())(t))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			endsWith(t, stand(t, r), ErrDisconnected)
		})
	}
}

// TestLateRejectionEvent checks the error of the event that reports such a rejection.
func TestLateRejectionEvent(t *testing.T) {
	r := newRig(t)
	k := newTalk(t)
	a, _ := k.pair()
	r.rejectLate(a)
	is(t, "the event", k.next(EventRejected, a).Err(), ErrDisconnected)
}

// respondedID returns an id without a QP whose peer has accepted.
func respondedID(t testing.TB) *SyncID {
	t.Helper()
	l, s, ctx := syncListener(t, PSTCP), newSyncID(t, PSTCP), limit(t)
	check(t, s.ResolveAddr(ctx, netip.AddrPort{}, l.LocalAddr(), 0))
	check(t, s.ResolveRoute(ctx, 0))
	done := make(chan error, 1)
	go func() { done <- s.Connect(ctx, foreign) }()
	check(t, closing(t, good(l.GetRequest(ctx))(t)).ID.Accept(foreign))
	check(t, <-done)
	return s
}

// waitQueued waits until n events are queued in s.
func waitQueued(t testing.TB, s *SyncID, n int) {
	t.Helper()
	until(t, "events are queued", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.queue) == n
	})
}

// TestCredentialsChangeUnderWait checks that waiting calls return ErrCredentials if the process changes its
// credentials.
func TestCredentialsChangeUnderWait(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	wait := make(chan error, 1)
	go func() { wait <- second(l.GetRequest(limit(t))) }()
	r.Set(func() { r.Stale = true })
	r.Post(l.kernelID, uint32(EventAddrChange), 0)
	err := <-wait
	if is(t, "GetRequest", err, ErrCredentials, unix.EACCES); errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("the device is not gone: %v", err)
	}
	<-l.Disconnected()
	r.Set(func() { r.Stale = false })
}

// TestPumpBreaksUnknownError checks that an unknown error of the pump ends the waits like a device removal.
func TestPumpBreaksUnknownError(t *testing.T) {
	r := newRig(t)
	l := syncListener(t, PSTCP)
	r.Set(func() { r.Refuse["GET_EVENT"] = unix.ENOMEM })
	r.Post(l.kernelID, uint32(EventAddrChange), 0)
	endsWith(t, l, uverbs.ErrDeviceGone)
	r.Set(func() { clear(r.Refuse) })
}

// TestDisconnectResultUnknown checks that Disconnect returns an error if it cannot determine whether the peer was
// notified.
func TestDisconnectResultUnknown(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(testing.TB, *rig, *SyncID)
		want error
	}{
		"the node breaks": {func(_ testing.TB, r *rig, s *SyncID) {
			r.Set(func() { r.Refuse["GET_EVENT"] = unix.EIO })
			r.Post(s.kernelID, uint32(EventAddrChange), 0)
		}, uverbs.ErrDeviceGone},
		"the device goes": {func(_ testing.TB, r *rig, _ *SyncID) { r.RemoveDevice() }, uverbs.ErrDeviceGone},
		"closed":          {func(t testing.TB, _ *rig, s *SyncID) { check(t, s.Close()) }, uverbs.ErrClosed},
		"migrated": {func(t testing.TB, _ *rig, s *SyncID) {
			check(t, s.Migrate(newTalk(t).EventChannel))
			t.Cleanup(func() { check(t, s.Close()) })
		}, uverbs.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			_, a, _ := connection(t)
			r.Hold(uint32(EventDisconnected)) // the peer is not notified
			done := make(chan error, 1)
			go func() { done <- a.Disconnect(limit(t)) }()
			until(t, "it is under way", func() bool { return r.State(a.kernelID) == "disconnecting" })
			tc.end(t, r, a)
			is(t, "Disconnect", <-done, tc.want)
			r.Set(func() { clear(r.Refuse) })
		})
	}
}
