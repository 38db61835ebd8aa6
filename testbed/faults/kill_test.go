//go:build vm

package faults

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// envSeed repeats the kills of an earlier run.
const envSeed = "GOVERBS_FAULTS_SEED"

func seed(t *testing.T) uint64 {
	t.Helper()
	n := uint64(time.Now().UnixNano())
	if v := os.Getenv(envSeed); v != "" {
		var err error
		if n, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
	}
	t.Logf("%s=%d", envSeed, n)
	return n
}

// testKill kills one peer after the other at random moments with SIGKILL. The surviving
// end must continue with the next peer, and finally finish with one that is not killed.
func (p *pair) testKill(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 0))
	for _, way := range []struct {
		name string
		args []string
	}{{"handshake", nil}, {"cm", []string{"-cm"}}} {
		t.Run(way.name, func(t *testing.T) { p.killAll(t, random, way.name, way.args) })
	}
}

func (p *pair) killAll(t *testing.T, random *rand.Rand, name string, args []string) {
	before, counted := p.resources(t), p.counters(t)
	at, kills := p.at(), p.scale.kills/2
	limit := p.scale.limit + time.Duration(kills)*10*time.Second
	n := strconv.Itoa(p.sends())
	survivor := p.ends[0].start(t, limit+30*time.Second, nil, p.ends[0].peer,
		append(args, "-n", n, "-serve", at, "-stay", "-limit", limit.String())...)
	survivor.event(t, Listening, 1)
	const longest = 1500 * time.Millisecond
	for range kills {
		moment := time.Duration(random.Int64N(int64(longest)))
		victim := p.ends[1].start(t, p.scale.limit, nil, p.ends[1].peer,
			append(args, "-n", long, "-call", at, "-die", max(moment, 1).String())...)
		var exit *vm.ExitError
		if err := victim.wait(); !errors.As(err, &exit) || !exit.Status.Signaled() ||
			exit.Status.Signal() != syscall.SIGKILL {
			t.Fatalf("a victim ended otherwise, after %v: %v\n%v", moment, err, victim)
		}
	}
	last := p.ends[1].start(t, limit, nil, p.ends[1].peer, append(args, "-n", n, "-call", at, "-limit", limit.String())...)
	a := last.account(t)
	if t.Failed() {
		t.FailNow() // the survivor would wait for its limit
	}
	survivor.event(t, Over, 1)
	signal(t, survivor, syscall.SIGTERM)
	b := survivor.account(t)
	if a.Received != p.sends() || a.Rounds != p.sends() || b.Stalls > 0 {
		t.Errorf("the last client: %+v\nthe survivor: %+v", a, b)
	}
	t.Logf("the survivor: %+v", b)
	p.leavesNothing(t, before)
	r := row{fault: "peer killed -9, " + name, injected: kills, accounts: []*Account{a, b},
		counters: difference(counted, p.counters(t))}
	if p.scale.soak {
		r.c = append(r.c, p.pingpongThrough(t, func(c, s *process) { signal(t, c, syscall.SIGKILL) }))
	}
	p.record(t, r)
}
