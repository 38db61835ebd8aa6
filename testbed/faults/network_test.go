//go:build vm

package faults

import (
	"errors"
	"strings"
	"sync"
	"testing"
)

// testNetwork runs our programs and the C programs with each fault of the network.
func (p *pair) testNetwork(t *testing.T) {
	for _, f := range networkFaults {
		t.Run(f.name, func(t *testing.T) {
			p.disturb(t, f)
			before := p.counters(t)
			watch := p.watch()
			a, b := p.talk(t, nil, "-sends", f.sends)
			backlog, err := watch()
			if err != nil {
				t.Fatal(err)
			}
			after := p.counters(t)
			injected := p.injected(t, f, sight{backlog: backlog, sent: after["sent_pkts"] - before["sent_pkts"]})
			r := row{fault: f.name, injected: injected, counters: difference(before, after), accounts: []*Account{a, b}}
			// The results of C are for the table only: without soak, one fault shows that these programs run.
			if p.scale.soak || f.name == networkFaults[0].name {
				r.c = append(r.c, p.pingpong(t), p.rping(t))
			}
			if p.scale.soak {
				r.c = append(r.c, p.pythonRounds(t, 400))
			}
			p.record(t, r)
		})
	}
}

// injected returns how often the fault happened. It fails the test if that is too
// rare.
func (p *pair) injected(t *testing.T, f fault, s sight) int {
	t.Helper()
	for _, e := range p.ends {
		q, err := e.qdisc()
		if err != nil {
			t.Fatal(err)
		}
		s.Packets += q.Packets
		s.Drops += q.Drops
		s.Requeues += q.Requeues
	}
	if err := f.check(s); err != nil {
		t.Error(err)
	}
	return f.happened(s)
}

// disturb configures netem with the fault until the test ends.
func (p *pair) disturb(t *testing.T, f fault) {
	t.Helper()
	for _, e := range p.ends {
		e.output(t, "tc", append(strings.Fields("qdisc add dev eth0 root netem limit 10000"), strings.Fields(f.netem)...)...)
		t.Cleanup(func() {
			if out, err := e.guest.Command("tc", "qdisc", "del", "dev", "eth0", "root").CombinedOutput(); err != nil {
				t.Errorf("tc: %v\n%s", err, out)
			}
		})
	}
}

// watch observes the queue until stop is called, which returns the largest number of
// packets in it.
func (p *pair) watch() (stop func() (int, error)) {
	var watching sync.WaitGroup
	most, enough := 0, make(chan struct{})
	var failed error
	watching.Go(func() {
		for {
			select {
			case <-enough:
				return
			default:
			}
			q, err := p.ends[0].qdisc()
			if err != nil {
				failed = errors.Join(failed, err)
				return
			}
			if most = max(most, q.Qlen); most > 0 {
				return // once is enough: do not load the guests
			}
		}
	})
	return func() (int, error) {
		close(enough)
		watching.Wait()
		return most, failed
	}
}

// counters returns the sums of both ends' counters.
func (p *pair) counters(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, e := range p.ends {
		for name, n := range e.counters(t) {
			all[name] += n
		}
	}
	return all
}

func difference(before, after map[string]int) map[string]int {
	d := map[string]int{}
	for name, n := range after {
		if n -= before[name]; n != 0 {
			d[name] = n
		}
	}
	return d
}
