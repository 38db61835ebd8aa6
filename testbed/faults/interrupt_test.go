//go:build vm

package faults

import (
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// testLink disconnects the cable long enough for both ends to notice, connects
// it again, and then disconnects it for short moments.
func (p *pair) testLink(t *testing.T) {
	before := p.counters(t)
	c, s := p.begin(t, nil)
	c.event(t, Connected, 1)
	s.event(t, Connected, 1)
	p.cable(t, false)
	c.event(t, Broken, 1)
	s.event(t, Broken, 1)
	p.cable(t, true)
	c.event(t, Connected, 2)
	pulled := 1
	for range p.scale.kills / 2 {
		if !c.running() {
			break
		}
		p.cable(t, false)
		p.cable(t, true)
		pulled++
	}
	a, b := c.account(t), s.account(t)
	p.balance(t, a, b)
	for _, a := range []*Account{a, b} {
		if a.Recovered == 0 || a.Failed == 0 {
			t.Errorf("no request failed, or no session came after: %+v", a)
		}
	}
	r := row{fault: "link down and up", injected: pulled, accounts: []*Account{a, b},
		counters: difference(before, p.counters(t))}
	if p.scale.soak {
		r.c = append(r.c, p.pingpongThrough(t, func(_, _ *process) {
			p.cable(t, false)
			lasting(t, hang)
			p.cable(t, true)
		}))
	}
	p.record(t, r)
}

// cable connects or disconnects the first guest's cable, and waits until its
// kernel has noticed.
func (p *pair) cable(t *testing.T, up bool) {
	t.Helper()
	e := p.ends[0]
	if err := e.guest.SetLink(0, up); err != nil {
		t.Fatal(err)
	}
	want := "0"
	if up {
		want = "1"
	}
	e.output(t, "timeout", "20", "sh", "-c", "until grep -q "+want+" /sys/class/net/eth0/carrier; do :; done")
}

// testStop stops one end with SIGSTOP until the other has nothing left to do.
func (p *pair) testStop(t *testing.T) {
	before := p.counters(t)
	c, s := p.begin(t, nil)
	c.event(t, Connected, 1)
	s.event(t, Connected, 1)
	stops := p.scale.kills / 3
	for i := range stops {
		quiet := strings.Count(s.String(), `"`+Quiet+`"`)
		signal(t, c, syscall.SIGSTOP)
		s.event(t, Quiet, quiet+1)
		signal(t, c, syscall.SIGCONT)
		if i < stops-1 {
			s.event(t, Awake, quiet+1)
		}
	}
	a, b := c.account(t), s.account(t)
	p.balance(t, a, b)
	r := row{fault: "SIGSTOP of a peer", injected: stops, accounts: []*Account{a, b},
		counters: difference(before, p.counters(t))}
	if p.scale.soak {
		r.c = append(r.c, p.pingpongThrough(t, func(c, s *process) {
			signal(t, c, syscall.SIGSTOP)
			lasting(t, time.Second)
			signal(t, c, syscall.SIGCONT)
		}))
	}
	p.record(t, r)
}

func signal(t *testing.T, p *process, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// testGC makes the garbage collector run all the time.
func (p *pair) testGC(t *testing.T) {
	before := p.counters(t)
	a, b := p.talk(t, []string{"GOGC=10"}, "-churn", "64")
	const least = 10
	if a.GCs < least || b.GCs < least {
		t.Errorf("%d and %d collections: too few", a.GCs, b.GCs)
	}
	p.record(t, row{fault: "garbage collections", injected: int(a.GCs + b.GCs), accounts: []*Account{a, b},
		counters: difference(before, p.counters(t)), c: []string{"has none"}})
}

// pingpongThrough calls happen while C's ibv_rc_pingpong runs.
func (p *pair) pingpongThrough(t *testing.T, happen func(client, server *process)) string {
	t.Helper()
	c, s := p.beginPingpong(t, 4*p.scale.iters)
	p.busy(t)
	happen(c, s)
	return verdict(t, "ibv_rc_pingpong", c, s, "invalid data")
}

// busy waits until messages flow.
func (p *pair) busy(t *testing.T) {
	t.Helper()
	e := p.ends[0]
	e.output(t, "timeout", "30", "sh", "-c", `cd /sys/class/infiniband/rxe0/ports/1/hw_counters
from=$(cat rdma_sends); until [ $(cat rdma_sends) -gt $((from + 20)) ]; do :; done`)
}

// lasting waits. It is for faults that must last, not for waiting until something has
// happened.
func lasting(t *testing.T, long time.Duration) {
	t.Helper()
	select {
	case <-time.After(long):
	case <-t.Context().Done():
		t.Fatal(t.Context().Err())
	}
}

// long is a number of messages that is not reached.
var long = strconv.Itoa(1 << 30)
