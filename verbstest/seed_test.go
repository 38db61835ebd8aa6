package verbstest_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A star is a machine whose CQ has the receives of QPs to several others.
type star struct {
	net *verbstest.Network
	cq  *uverbs.CQ
	to  []*uverbs.QP // the others' ends
	mr  []*uverbs.MR // of the others
	own []*uverbs.MR
}

// newStar connects n QPs of one machine with one QP on each of n others. The CQ gets completions of
// all.
func newStar(t *testing.T, n int, options ...verbstest.Option) *star {
	s := &star{net: verbstest.NewNetwork(t, options...)}
	t.Cleanup(func() { runtime.KeepAlive(s) }) // its regions are closed with their contexts
	open := func() (*uverbs.PD, *uverbs.CQ) {
		c := must(uverbs.Open(""))(t)
		t.Cleanup(func() { check(t, c.Close()) })
		return must(c.AllocPD())(t), must(c.CreateCQ(uverbs.CQConfig{Entries: 256}))(t)
	}
	var pd *uverbs.PD
	s.net.Machine().Run(func() { pd, s.cq = open() })
	for range n {
		cfg := uverbs.QPConfig{Type: uverbs.RC, MaxSendWR: 16, MaxRecvWR: 16}
		cfg.SendCQ, cfg.RecvCQ = s.cq, s.cq
		q := must(pd.CreateQP(cfg))(t)
		s.net.Machine().Run(func() {
			otherPD, cq := open()
			cfg.SendCQ, cfg.RecvCQ = cq, cq
			other := must(otherPD.CreateQP(cfg))(t)
			check(t, other.Connect(must(q.Endpoint())(t)))
			check(t, q.Connect(must(other.Endpoint())(t)))
			s.to = append(s.to, other)
			s.mr = append(s.mr, must(otherPD.Alloc(messageSize, 0))(t))
		})
		mr := must(pd.Alloc(messageSize, uverbs.LocalWrite))(t)
		s.own = append(s.own, mr)
		for range 8 {
			must(q.PostRecv(uverbs.RecvWR{WRID: uint64(len(s.to)), SGL: []uverbs.SGE{mr.SGE(0, messageSize)}}))(t)
		}
	}
	return s
}

// play sends three messages from each of the others and returns the order in which they arrive. wait
// is called when there is no completion.
func (s *star) play(t *testing.T, wait func()) (order []uint64) {
	const messages = 3
	for range messages {
		for i, q := range s.to {
			must(q.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
				SGL: []uverbs.SGE{s.mr[i].SGE(0, messageSize)}}))(t)
		}
	}
	var wcs [1]uverbs.WC
	for deadline := time.Now().Add(time.Minute); len(order) < messages*len(s.to); {
		if time.Now().After(deadline) {
			t.Fatalf("only %d messages have arrived", len(order))
		}
		if must(s.cq.Poll(wcs[:]))(t) == 0 {
			wait()
			continue
		}
		check(t, wcs[0].Err())
		order = append(order, wcs[0].WRID)
	}
	return order
}

// TestSteps checks that a seed decides the order of arrival, also beside random faults.
func TestSteps(t *testing.T) {
	play := func(seed uint64) string {
		s := newStar(t, 4, verbstest.Steps(seed))
		s.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.2})
		steps := 0
		order := s.play(t, func() {
			steps++
			if !s.net.Step() {
				t.Fatal("nothing is left to be delivered")
			}
		})
		for s.net.Step() {
			steps++
		}
		return fmt.Sprint(order, steps)
	}
	orders := map[string]bool{}
	for seed := range uint64(10) {
		first, again := play(seed+1), play(seed+1)
		if first != again {
			t.Errorf("seed %d: %s, and again %s", seed+1, first, again)
		}
		orders[first] = true
	}
	if len(orders) < 8 {
		t.Errorf("ten seeds make only %d orders: %v", len(orders), orders)
	}
}

// TestSeed checks that a network with a seed delivers by itself.
func TestSeed(t *testing.T) {
	newStar(t, 4, verbstest.Seed(7)).play(t, func() {})
}

// TestSynctest checks that in a bubble a program that polls and sleeps between polls works with Steps, if
// the device was opened outside: a goroutine that reads the events of the device does not let time pass.
func TestSynctest(t *testing.T) {
	s := newStar(t, 2, verbstest.Steps(7))
	s.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Count: 30})
	synctest.Test(t, func(t *testing.T) {
		start, sleeps := time.Now(), 0
		s.play(t, func() {
			s.net.Step()
			<-time.After(time.Millisecond)
			sleeps++
		})
		if passed := time.Since(start); sleeps == 0 || passed != time.Duration(sleeps)*time.Millisecond {
			t.Errorf("%v have passed in %d sleeps of a millisecond", passed, sleeps)
		}
	})
}

const seedChild = "VERBSTEST_SEED_CHILD"

// TestSeedVariable checks that the seed of a failed test is logged, and that the variable sets it.
func TestSeedVariable(t *testing.T) {
	if os.Getenv(seedChild) != "" {
		newStar(t, 1, verbstest.Seed(0))
		t.Fail()
		return
	}
	for _, c := range []struct{ set, want string }{
		{"123", "the seed was 123: run the test with VERBSTEST_SEED=123"},
		{"x", `VERBSTEST_SEED is "x": set it to a number from 0 to 2^64-1`},
	} {
		cmd := exec.CommandContext(t.Context(), must(os.Executable())(t), "-test.run=^TestSeedVariable$")
		cmd.Env = append(os.Environ(), seedChild+"=1", verbstest.SeedVariable+"="+c.set)
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), c.want) {
			t.Errorf("%s: %v\n%s, want %q", c.set, err, out, c.want)
		}
	}
}
