//go:build vm

package faults

import (
	"strconv"
	"strings"
	"testing"
)

// testLongSends provokes another defect of rxe: SENDs of several packets, with other
// requests between them, over a network that reorders. If an acknowledgement arrives
// while a SEND is being retransmitted, rxe's next packets may have the numbers of other
// requests. Usually the connection breaks; sometimes a message arrives twice or a READ
// completes without data. Nothing else may happen.
func (p *pair) testLongSends(t *testing.T, f fault) {
	p.falseSuccess = true
	p.disturb(t, f)
	before := p.counters(t)
	c, s := p.begin(t, nil, "-sends", "long")
	a, b := c.result(t), s.result(t)
	after := p.counters(t)
	injected := p.injected(t, f, sight{sent: after["sent_pkts"] - before["sent_pkts"]})
	r := row{fault: f.name + ", long SENDs", injected: injected, counters: difference(before, after),
		accounts: []*Account{a, b}}
	for _, a := range []*Account{a, b} {
		known := *a
		known.Duplicates, known.Corrupt = 0, 0
		if err := known.Check(); err != nil || a.Received != p.sends() {
			t.Errorf("%v: %+v", err, a)
		}
	}
	t.Logf("%d duplicates, %d messages and READs with wrong data; statuses %v and %v", a.Duplicates+b.Duplicates,
		a.Corrupt+b.Corrupt, a.Statuses, b.Statuses)
	r.c = append(r.c, p.pythonSends(t, 3600))
	p.record(t, r)
}

// pythonSends sends messages of length bytes with C's library, through pyverbs.
func (p *pair) pythonSends(t *testing.T, length int) string {
	t.Helper()
	_, port, _ := strings.Cut(p.at(), ":")
	var script [2]string
	for i, e := range p.ends {
		var err error
		if script[i], err = e.guest.Install("sends.py"); err != nil {
			t.Fatal(err)
		}
	}
	n := strconv.Itoa(2 * p.sends())
	s := p.ends[0].start(t, p.scale.limit, nil, "python3", script[0], p.ends[0].gid, port, strconv.Itoa(length), n)
	p.ends[0].listens(t, port)
	c := p.ends[1].start(t, p.scale.limit, nil, "python3", script[1], p.ends[1].gid, port, strconv.Itoa(length), n,
		p.ends[0].address)
	said := verdict(t, "sends by libibverbs", c, s, `"(twice|wrong|corrupt)": [1-9]`)
	for _, p := range []*process{s, c} {
		if line, ok := p.await("{", 1); ok {
			said += " " + line
		}
	}
	return said
}
