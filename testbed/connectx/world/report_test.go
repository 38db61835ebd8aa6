package world

import (
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/testbed/connectx"
)

// TestReporter checks that repeated errors of a guest are limited, and that a
// slow receiver does not block the loop.
func TestReporter(t *testing.T) {
	const times = 3 * maxReports
	var reports []error
	violations := map[string]int{}
	listen := make(chan struct{})
	var l *loop.Loop
	w, err := Start(Config{
		Dir: t.TempDir(), Devices: 2,
		Report: func(err error) { reports = append(reports, err) },
		Violation: func(device string, v engine.Violation) {
			<-listen
			l.Run(func() {}) // the loop is idle
			violations[device+" "+string(v.Rule)]++
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l = w.Loop
	l.Run(func() {
		for i := range uint32(times) {
			w.Devices[0].Engine().Store(1, 0x20, []byte{0, 0, 0, 0, 0, 0, 0, byte(i)})
			if i < 2 {
				w.Devices[1].Engine().Store(1, 0x20, []byte{0, 0, 0, 0, 0, 0, 0, byte(i)})
			}
			w.report("connectx0", &connectx.Complaint{Kind: "a doorbell of %d", Err: fmt.Errorf("a doorbell of %d", i)})
		}
		w.report("connectx0", errors.New("something else"))
	})
	close(listen)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	rule := " " + string(engine.RuleUnknownQueue)
	if a, b := violations["connectx0"+rule], violations["connectx1"+rule]; a != maxReports || b != 2 {
		t.Errorf("reported %d and %d violations, want %d and 2: %v", a, b, maxReports, violations)
	}
	more := 0
	for _, err := range reports {
		for _, want := range []string{
			`connectx0: 200 more of "a doorbell of %d"`,
			`connectx0: 200 more of "` + string(engine.RuleUnknownQueue) + `"`,
		} {
			if err.Error() == want {
				more++
			}
		}
	}
	if more != 2 || len(reports) != maxReports+1+2 {
		t.Errorf("reported %d complaints, %d of them of suppressed ones, want %d and 2: %v", len(reports), more,
			maxReports+3, reports)
	}
}
