package verbstest_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A recorder is a test whose failure is recorded.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) { r.Fatalf("%s", fmt.Sprint(args...)) }

func (r *recorder) Fatalf(format string, args ...any) {
	r.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// TestMisuse checks that the wrong use of each fault fails the test with a text that says what to do.
func TestMisuse(t *testing.T) {
	r := &recorder{TB: t}
	n, elsewhere := verbstest.NewNetwork(r), verbstest.NewNetwork(t)
	a, b, other := n.Machine(), n.Machine(), elsewhere.Machine()
	var q *uverbs.QP
	b.Run(func() {
		c := must(uverbs.Open(""))(t)
		t.Cleanup(func() { check(t, c.Close()) })
		q, _ = loopback(t, c)
	})
	for _, c := range []struct {
		want string
		use  func()
	}{
		{"both From and To: set one", func() { n.AddFault(verbstest.PacketFault{Action: verbstest.Drop, From: a, To: b}) }},
		{"drop, duplicate, reorder", func() { n.AddFault(verbstest.PacketFault{}) }},
		{"a delay needs its time", func() { n.AddFault(verbstest.PacketFault{Action: verbstest.Delay}) }},
		{"probability 2: from 0 to 1", func() { n.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 2}) }},
		{"machine 1 is on another network", func() {
			n.AddFault(verbstest.PacketFault{Action: verbstest.Drop, From: other})
		}},
		{"n counts from 1", func() { a.FailCommand(0, unix.EIO) }},
		{"the errno is not 0", func() { a.FailCommand(1, 0) }},
		{"there are ALLOC_MW,", func() { a.Refuse("MR.REG", unix.EIO) }},
		{"PD.DESTROY cannot fail", func() { a.Refuse("PD.DESTROY", unix.EIO) }},
		{"use one of the constants uverbs.MTU256", func() { a.SetMTU(0) }},
		{"use a positive time", func() { a.SetCommandTime(-time.Second) }},
		{"no completion of an adapter has the status", func() { a.FailCompletion(nil, uverbs.WCSuccess, 0) }},
		{"use 0 for the next completion", func() { a.FailCompletion(nil, uverbs.WCRemOpErr, -1) }},
		{"use an open QP of this machine, or nil", func() { a.FailCompletion(q, uverbs.WCRemOpErr, 0) }},
		{"use a positive number, or 0 for no limit", func() { a.SetLimits(verbstest.Limits{QPs: -1}) }},
		{"use a positive number, or 0 for no limit", func() { a.SetLimits(verbstest.Limits{Memlock: -1}) }},
		{"there are REQ, MRA, REP", func() { n.AddHandshakeFault(verbstest.HandshakeFault{Message: "req"}) }},
		{"use Drop, Duplicate or Delay", func() {
			n.AddHandshakeFault(verbstest.HandshakeFault{Action: verbstest.Reorder})
		}},
		{"set Action or Edit", func() { n.AddHandshakeFault(verbstest.HandshakeFault{}) }},
		{"set Action or Edit", func() {
			n.AddHandshakeFault(verbstest.HandshakeFault{Action: verbstest.Drop, Edit: func(*verbstest.Handshake) {}})
		}},
		{"Delay has a positive Delay", func() { n.AddHandshakeFault(verbstest.HandshakeFault{Action: verbstest.Delay}) }},
		{"not negative", func() { n.AddHandshakeFault(verbstest.HandshakeFault{Action: verbstest.Drop, Skip: -1}) }},
		{"on another network", func() {
			n.AddHandshakeFault(verbstest.HandshakeFault{Action: verbstest.Drop, To: other})
		}},
		{"there is no rule \"late\": use the constants", func() { n.Allow("late") }},
		{"there is no rule \"late\": use the constants", func() { a.Allow(verbstest.ReceiveLate, "late") }},
		{"name two", func() { n.Partition(a, a) }},
		{"on another network", func() { n.Partition(a, other) }},
		{"Ack is at most 31", func() { n.SetTimeouts(verbstest.Timeouts{Ack: 32}) }},
		{"not negative", func() { n.SetTimeouts(verbstest.Timeouts{Reply: -1}) }},
	} {
		r.text = ""
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.use()
		}()
		<-done
		if !strings.HasPrefix(r.text, "verbstest: ") || !strings.Contains(r.text, c.want) {
			t.Errorf("%q, want …%s…", r.text, c.want)
		}
	}
}
