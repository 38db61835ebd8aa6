package perftest

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A stateWire is a wire that only has a state.
type stateWire struct {
	wire
	pending int
	gone    error
}

func (w *stateWire) state() (int, error) { return w.pending, w.gone }

// The result of checkProgress in a run that has done 7 of 10 messages.
func TestCheckProgress(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		name string
		ctx  context.Context
		wire stateWire
		idle time.Duration
		want string
	}{
		{"all is well", t.Context(), stateWire{}, time.Second, ""},
		{"the peer has said something, which may be early", t.Context(), stateWire{pending: 108}, time.Second, ""},
		{"the peer has finished", t.Context(), stateWire{pending: 108}, 3 * time.Second,
			"-n at the peer: the peer has finished, but this end has done 7 of 10"},
		{"the peer has gone", t.Context(), stateWire{gone: errPeerClosed}, 0,
			"during the run, after 7 messages: the peer has ended the connection"},
		{"stalled", t.Context(), stateWire{}, time.Minute, "-n at the peer: no progress for 20s after 7 of 10"},
		{"interrupted", ended, stateWire{gone: errPeerClosed}, 0, ErrInterrupted.Error()},
	} {
		v := &watchdog{parent: c.ctx, wire: &c.wire, total: 10, lastDone: 7, lastMove: time.Now().Add(-c.idle)}
		err := v.checkProgress(7)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if v.checkProgress(8) == nil && time.Since(v.lastMove) > time.Second {
			t.Errorf("%s: another message is no progress", c.name)
		}
	}
}

// If no message has arrived, the error does not blame -n.
func TestNoMessage(t *testing.T) {
	for _, c := range []struct {
		pending int
		idle    time.Duration
		want    string
	}{{0, time.Second, ""}, {108, 3 * time.Second, "no message has arrived here: it runs another test"},
		{0, time.Minute, "-c at the peer: no message has arrived for 20s"}} {
		for _, lossy := range []bool{false, true} {
			v := &watchdog{parent: t.Context(), wire: &stateWire{pending: c.pending}, total: 10, lossy: lossy,
				lastMove: time.Now().Add(-c.idle)}
			err := v.checkProgress(0)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v", c, err)
			}
		}
	}
}

// A run without a number of messages has no -n to blame.
func TestStallWithoutTotal(t *testing.T) {
	v := &watchdog{parent: t.Context(), wire: &stateWire{pending: 108}, lastDone: 7,
		lastMove: time.Now().Add(-3 * time.Second)}
	if err := v.checkProgress(7); err != nil {
		t.Errorf("a peer that is done first: %v", err)
	}
	v.lastMove = time.Now().Add(-time.Minute)
	if err := v.checkProgress(7); err == nil || strings.Contains(err.Error(), "-n") ||
		!strings.Contains(err.Error(), "after 7 messages") {
		t.Errorf("stalled: %v", err)
	}
}

// The time of --latency_gap does not count as a stall.
func TestGap(t *testing.T) {
	v := newWatchdog(t.Context(), &stateWire{pending: 1}, &Options{LatencyGap: 30e6}, 0, 10, nil)
	defer v.stop()
	v.lastDone, v.lastMove = 7, time.Now().Add(-25*time.Second)
	if err := v.checkProgress(7); err != nil {
		t.Error(err)
	}
	// An interrupt ends the gap.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := &latency{endpoint: &endpoint{o: &Options{LatencyGap: 1e9},
		watchdog: newWatchdog(ctx, &stateWire{}, &Options{}, 0, 10, nil)}}
	defer l.watchdog.stop()
	if err := l.gap(); err != ErrInterrupted {
		t.Error(err)
	}
}

func TestProgress(t *testing.T) {
	var out bytes.Buffer
	v := &watchdog{progress: &out, total: 10}
	at := time.Now()
	v.reportProgress(at, 3)
	v.reportProgress(at.Add(time.Second), 4)
	v.total = 0
	v.reportProgress(at.Add(progressInterval), 5)
	if want := " 3 of 10 messages\n 5 messages\n"; out.String() != want {
		t.Errorf("%q, want %q", &out, want)
	}
}

// A run of a given duration passes through its phases, and an alarm ends it.
func TestPhases(t *testing.T) {
	o := &Options{Duration: 1}
	v := newWatchdog(t.Context(), &stateWire{}, o, 0, 0, nil)
	defer v.stop()
	if v.phase.Load() != warming {
		t.Error("it counts before it has begun")
	}
	v.startClock(o)
	v.startClock(o)
	if v.phase.Load() != sampling || v.begin.Load() == 0 {
		t.Errorf("phase %d, begun at %d", v.phase.Load(), v.begin.Load())
	}
	for v.phase.Load() != finished {
		<-time.After(10 * time.Millisecond)
	}
	if took := time.Duration(v.end.Load() - v.begin.Load()); took < time.Second {
		t.Errorf("took %v", took)
	}
	for !v.alarm.Load() {
		<-time.After(time.Millisecond)
	}
	if err := v.check(0); !errors.Is(err, errTime) {
		t.Error(err)
	}
}

// The end of a run's context wakes a run that sleeps, and sets the alarm of one that
// polls.
func TestInterruptedWatch(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v := newWatchdog(ctx, &stateWire{}, &Options{}, 0, 0, nil)
	defer v.stop()
	cancel()
	<-v.stopped
	if !v.alarm.Load() {
		t.Error("a run that polls is not alarmed")
	}
	if err := v.check(1); err != ErrInterrupted {
		t.Error(err)
	}
}

// A run that sleeps is woken when the peer disconnects.
func TestSleepingWatch(t *testing.T) {
	v := newWatchdog(t.Context(), &stateWire{gone: errPeerClosed}, &Options{Events: true}, 0, 10, nil)
	defer v.stop()
	select {
	case <-v.ctx.Done():
	case <-time.After(time.Minute):
		t.Fatal("it sleeps on")
	}
	if err := context.Cause(v.ctx); !errors.Is(err, errPeerClosed) {
		t.Error(err)
	}
}

func TestSlots(t *testing.T) {
	o := &Options{Test: Test{Write, true}, cycle: 256, cacheLine: 64}
	for _, c := range []struct {
		size int
		want []uint64
	}{
		{8, []uint64{100, 164, 228, 292, 100}}, {65, []uint64{100, 228, 100}}, {128, []uint64{100, 228, 100}},
		{129, []uint64{100, 100}}, {5000, []uint64{100, 100}},
	} {
		circle := o.slots(100, c.size)
		for i, want := range c.want {
			if got := circle.next(); got != want {
				t.Errorf("%d bytes, the %d.: %d, want %d", c.size, i, got, want)
			}
		}
	}
	o.Bandwidth = false
	circle := o.slots(100, 8)
	for range 2 {
		if got := circle.next(); got != 100 {
			t.Errorf("a latency test has one place, at 100: got %d", got)
		}
	}
}

func TestBestGID(t *testing.T) {
	entry := func(addr string, typ uverbs.GIDType, index int) uverbs.GIDEntry {
		var g uverbs.GID
		if err := g.UnmarshalText([]byte(addr)); err != nil {
			t.Fatal(err)
		}
		return uverbs.GIDEntry{GID: g, Type: typ, Index: index}
	}
	const local, four = "fe800000000000000000000000000001", "00000000000000000000ffff0a090001"
	all := []uverbs.GIDEntry{entry(local, uverbs.GIDTypeRoCEv1, 0), entry(local, uverbs.GIDTypeRoCEv2, 1),
		entry(four, uverbs.GIDTypeRoCEv1, 2), entry(four, uverbs.GIDTypeRoCEv2, 3), entry(four, uverbs.GIDTypeRoCEv2, 4)}
	if got := bestGID(all, false).Index; got != 3 {
		t.Errorf("IPv4: %d", got)
	}
	if got := bestGID(all, true).Index; got != 1 {
		t.Errorf("IPv6: %d", got)
	}
}

func TestLoadByte(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for i, want := range b {
		if got := loadByte(b, i); got != want {
			t.Errorf("[%d]: %d, want %d", i, got, want)
		}
	}
}

// Errors for failed completions.
func TestCheck(t *testing.T) {
	o := normalized(t, "send_bw", "-s", "64")
	o.mtu = uverbs.MTU1024
	e := &endpoint{o: o, size: 64}
	for _, c := range []struct {
		wc      uverbs.WC
		receive bool
		want    string
	}{
		{uverbs.WC{ByteLen: 64}, true, ""},
		{uverbs.WC{}, false, ""},
		{uverbs.WC{ByteLen: 65}, true, "-s at the peer: the peer's messages have 65 bytes, and here -s is 64"},
		{uverbs.WC{Status: uverbs.WCLocLenErr}, true, "longer than here"},
		{uverbs.WC{Status: uverbs.WCLocQPOpErr}, true, "longer than here"},
		{uverbs.WC{Status: uverbs.WCRemInvReqErr}, false, "too short for 64 bytes"},
		{uverbs.WC{Status: uverbs.WCRemOpErr}, false, "too short for 64 bytes"},
		{uverbs.WC{Status: uverbs.WCRemAccessErr}, false, "does not run send_bw"},
		{uverbs.WC{Status: uverbs.WCRetryExcErr}, false, "1024 bytes of payload"},
		{uverbs.WC{Status: uverbs.WCLocQPOpErr}, false, "local QP operation error"},
	} {
		err := e.check(&c.wc, c.receive)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %s", c.wc, err, c.want)
		}
		if c.wc.Status != uverbs.WCSuccess && !errors.Is(err, c.wc.Status) {
			t.Errorf("%+v: %v forgets the status", c.wc, err)
		}
	}
	// After messages of this size the options are not blamed, and the results are printed.
	e.qps = []*queue{{completed: 5000}}
	err := e.check(&uverbs.WC{Status: uverbs.WCRemOpErr}, false)
	if !errors.Is(err, uverbs.WCRemOpErr) || strings.Contains(err.Error(), "-s") || !figuresValid(err) {
		t.Error(err)
	}
	o.Type = uverbs.UD
	if err := e.check(&uverbs.WC{ByteLen: 64 + uverbs.GRHLen}, true); err != nil {
		t.Error(err)
	}
}

// A lateWire is a connection that ends when its state is asked for, just after the last message has arrived.
type lateWire struct {
	wire
	memory []byte
}

func (w lateWire) state() (int, error) {
	w.memory[0] = 7
	return 0, errPeerClosed
}

// TestEndAfterLastMessage checks that a message that arrives before the peer's end counts, and that the end is an error
// if another one is due.
func TestEndAfterLastMessage(t *testing.T) {
	o := normalized(t, "write_lat")
	memory := []byte{0}
	v := newWatchdog(t.Context(), lateWire{memory: memory}, o, 1, 10, nil)
	defer v.stop()
	l := &latency{endpoint: &endpoint{o: o, watchdog: v}}
	if err := l.await(memory, 0, 7); err != nil {
		t.Error(err)
	}
	if err := l.await(memory, 0, 8); !errors.Is(err, errPeerClosed) {
		t.Error(err)
	}
}
