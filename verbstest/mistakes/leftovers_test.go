package mistakes

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// leave leaves connections, a listener and a region.
func leave(addr string) {
	l := must(rdma.Listen(addr+":0", nil))
	for range 2 {
		accepted := make(chan *rdma.Conn)
		go func() { accepted <- must(l.Accept(background)) }()
		must(rdma.Dial(background, l.Addr().String(), nil))
		<-accepted
	}
	pd := must(must(uverbs.Open("")).AllocPD())
	must(pd.Alloc(size, all))
}

// leftovers returns what is reported for leave.
func leftovers(t *testing.T, failed bool) *recorder {
	e := &recorder{TB: t, failed: failed}
	m := verbstest.NewNetwork(e).Machine()
	m.Run(func() { leave(m.Addr().String()) })
	e.end()
	return e
}

// TestLeftovers checks that what a program has left is reported once each, with its line, and what the library has
// created for it is summed up.
func TestLeftovers(t *testing.T) {
	e := leftovers(t, false)
	for _, want := range []string{
		`not-closed: the connection to \S+, created at leftovers_test.go:21 \(2 of them\)`,
		`left in the kernel: PD \d+, created at leftovers_test.go:24`,
		`left in the kernel: MR \d+, created at leftovers_test.go:25`,
		`rdma_cm: id \d+, listening, is not destroyed, created at leftovers_test.go:17`,
		`left in the kernel by the library: 4 CQs, 4 MRs, .*4 QPs, .*, for what is named above`,
	} {
		if !slices.ContainsFunc(e.errors, regexp.MustCompile(want).MatchString) {
			t.Errorf("not reported: %s", want)
		}
	}
	if len(e.errors) > 12 || len(e.logs) > 0 {
		t.Errorf("%d reports:\n%s\n%q", len(e.errors), strings.Join(e.errors, "\n"), e.logs)
	}
}

// TestLeftoversAfterFailure checks that a test that has failed before gets one line.
func TestLeftoversAfterFailure(t *testing.T) {
	e := leftovers(t, true)
	want := regexp.MustCompile(`^verbstest: the test has failed, so what it left is not listed: .*4 QPs, .*4 not-closed, `)
	if len(e.errors) > 0 || len(e.logs) != 1 || !want.MatchString(e.logs[0]) {
		t.Errorf("reported: %q, logged: %q", e.errors, e.logs)
	}
}

// TestClosedAfterFailure checks that the line also has what the device finds when queues are closed by functions of
// t.Cleanup, or are left, and that all of this is reported if the test has not failed.
func TestClosedAfterFailure(t *testing.T) {
	for _, c := range []struct{ failed, closes, allowed bool }{
		{true, true, false}, {true, false, false}, {false, true, false}, {true, true, true},
	} {
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			e := &recorder{TB: t}
			m := verbstest.NewNetwork(e).Machine()
			if c.allowed {
				m.Allow(verbstest.ReceiveLate, verbstest.LostWakeup)
			}
			m.Run(func() {
				for range 2 {
					late, armed := newPair(m.Device(), config{}), newPair(m.Device(), config{})
					must(late.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte("late")}))
					armed.armWith(1)
					if c.closes {
						e.Cleanup(func() { m.Run(func() { late.close(); armed.close() }) })
					}
				}
			})
			e.failed = c.failed
			e.end()
			reports, logs := strings.Join(e.errors, "\n"), strings.Join(e.logs, "\n")
			if n := strings.Count(reports, "receive-late: ") + strings.Count(reports, "lost-wakeup: "); c.failed && n > 0 ||
				!c.failed && n != 4 {
				t.Errorf("reported: %s", reports)
			}
			counted := strings.Contains(logs, ": 2 lost-wakeup, 2 receive-late") ||
				strings.Contains(logs, ", 2 lost-wakeup, 2 receive-late")
			if len(e.logs) > 1 || counted != (c.failed && !c.allowed) {
				t.Errorf("logged: %s", logs)
			}
		})
	}
}
