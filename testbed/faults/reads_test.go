//go:build vm

package faults

import (
	"strconv"
	"strings"
	"testing"
)

// testLongReads provokes a defect of rxe on 6.12 and 7.2: READs of several packets, with
// other requests before them. If the acknowledgement of an earlier request arrives
// between the packets of a READ response, rxe fails the READ with status success and
// moves the QP to ERR. C's library sees the same. Nothing else may happen: messages
// continue after each failure, and every request is reported.
func (p *pair) testLongReads(t *testing.T, f fault) {
	p.disturb(t, f)
	p.falseSuccess = true
	before := p.counters(t)
	c, s := p.begin(t, nil, "-long", "-sends", f.sends)
	a, b := c.result(t), s.result(t)
	after := p.counters(t)
	injected := p.injected(t, f, sight{sent: after["sent_pkts"] - before["sent_pkts"]})
	r := row{fault: f.name + ", long READs", injected: injected, counters: difference(before, after),
		accounts: []*Account{a, b}}
	for _, a := range []*Account{a, b} {
		known := *a
		known.Corrupt = 0
		if err := known.Check(); err != nil || a.Received != p.sends() || a.Rounds+a.Corrupt != p.sends() {
			t.Errorf("%v: %+v", err, a)
		}
	}
	t.Logf("completed with success, but with wrong data: %d of %d READs", a.Corrupt+b.Corrupt, 2*p.sends())
	r.c = append(r.c, p.pythonRounds(t, 3000))
	p.record(t, r)
}

// pythonRounds transfers rounds of length bytes with C's library, through
// pyverbs.
func (p *pair) pythonRounds(t *testing.T, length int) string {
	t.Helper()
	_, port, _ := strings.Cut(p.at(), ":")
	var script [2]string
	for i, e := range p.ends {
		var err error
		if script[i], err = e.guest.Install("rounds.py"); err != nil {
			t.Fatal(err)
		}
	}
	s := p.ends[0].start(t, p.scale.limit, nil, "python3", script[0], p.ends[0].gid, port, strconv.Itoa(length))
	p.ends[0].listens(t, port)
	c := p.ends[1].start(t, p.scale.limit, nil, "python3", script[1], p.ends[1].gid, port, strconv.Itoa(length),
		p.ends[0].address, strconv.Itoa(p.sends()))
	said := verdict(t, "rounds by libibverbs", c, s, `"corrupt": [1-9]`)
	if line, ok := c.await("{", 1); ok {
		said += " " + line
	}
	return said
}
