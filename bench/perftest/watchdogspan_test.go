package perftest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// One completion may cover 100 messages of 8 MiB, which take more than a minute on a
// slow network. That is not a stall, and a peer that has finished does not show that -n
// differs.
func TestCheckProgressSpan(t *testing.T) {
	o := normalized(t, "write_bw", "-a", "-n", "100")
	for _, c := range []struct {
		pending, done int
		idle          time.Duration
		want          string
	}{
		{0, 0, 90 * time.Second, ""},
		{0, 100, 90 * time.Second, ""},
		{108, 100, 80 * time.Second, ""},
		{108, 100, 90 * time.Second, "the peer has finished"},
		{0, 0, 2 * time.Minute, "no message has arrived for 1m44s"},
		{0, 100, 2 * time.Minute, "no progress for 1m44s"},
	} {
		v := newWatchdog(t.Context(), &stateWire{pending: c.pending}, o, 8<<20, 200, nil)
		v.lastDone, v.lastMove = c.done, time.Now().Add(-c.idle)
		err := v.checkProgress(c.done)
		v.stop()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestSpan(t *testing.T) {
	for _, c := range []struct {
		command string
		size    int
		want    time.Duration
	}{
		{"write_bw -a -n 100", 1e6, 10 * time.Second},
		{"write_bw -a -n 100 -b", 1e6, 20 * time.Second},
		{"write_bw -a -n 100 -q 3", 1e6, 30 * time.Second},
		{"write_bw -a -n 100 -Q 1", 1e6, 100 * time.Millisecond},
		{"send_bw -a -n 20", 1e6, 2 * time.Second},
		{"write_bw -s 1000000", 1e6, 100 * time.Millisecond}, // each message is signaled
		{"send_lat -n 100", 1e6, 100 * time.Millisecond},
		{"write_bw -a -n 100", 2, 20 * time.Microsecond},
		{"write_bw -a -n 5000 -q 1000", 8 << 20, maxSpan},
	} {
		f := strings.Fields(c.command)
		if got := normalized(t, f[0], f[1:]...).span(c.size); got != c.want {
			t.Errorf("%s of %d bytes: %v, want %v", c.command, c.size, got, c.want)
		}
	}
}

// If a queue holds fewer requests than before, there is progress, although nothing has
// completed. If it holds the same number, there is none.
func TestCheckProgressHeld(t *testing.T) {
	held := 100
	v := &watchdog{parent: t.Context(), wire: &stateWire{}, total: 100, held: func() int { return held }}
	for held > 0 {
		held--
		v.lastMove = time.Now().Add(-time.Hour)
		if err := v.checkProgress(0); err != nil {
			t.Fatalf("with %d requests in the queue: %v", held, err)
		}
	}
	v.lastMove = time.Now().Add(-time.Hour)
	if err := v.checkProgress(0); err == nil {
		t.Error("a queue in which nothing moves is no stall")
	}
}

// The watchdog counts the requests in the queues, unless the run sleeps and the queues
// are SingleGoroutine.
func TestHeld(t *testing.T) {
	p := newPair()
	var ends [2][]*queue
	for i, c := range p.cards {
		dev, err := c.open("")
		if err != nil {
			t.Fatal(err)
		}
		defer c.close(t)
		defer func() {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}()
		for range 2 {
			ends[i] = append(ends[i], &queue{qp: readyQP(t, dev)})
		}
	}
	e := &endpoint{o: normalized(t, "send_bw"), ctl: &control{wire: &stateWire{}}, qps: ends[1]}
	for i, n := range []int{3, 4} {
		for range n {
			if _, err := e.qps[i].qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		events, noLock bool
		want           int
	}{{false, false, 7}, {false, true, 7}, {true, false, 7}, {true, true, 0}} {
		e.o.Events, e.o.NoLock = c.events, c.noLock
		got := 0
		if err := e.watched(t.Context(), func() error {
			if e.watchdog.held != nil {
				got = e.watchdog.held()
			}
			return nil
		}); err != nil || got != c.want {
			t.Errorf("%+v: %d requests, %v", c, got, err)
		}
	}
}

// readyQP returns a QP that is connected to the QP with the same number of the other
// device.
func readyQP(t *testing.T, dev *uverbs.Context) *uverbs.QP {
	t.Helper()
	pd, err := dev.AllocPD()
	if err != nil {
		t.Fatal(err)
	}
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true})
	if err != nil {
		t.Fatal(err)
	}
	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 8, MaxRecvWR: 8})
	if err != nil {
		t.Fatal(err)
	}
	self, err := qp.Endpoint()
	if err := errors.Join(err, qp.Connect(self)); err != nil {
		t.Fatal(err)
	}
	return qp
}
