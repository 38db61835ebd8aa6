package world

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// maxReports bounds how often the same error of a device is reported: a guest
// can cause it a million times.
const maxReports = 100

// A reporter reports errors from a separate goroutine, so that a slow receiver
// does not block the loop.
type reporter struct {
	mu      sync.Mutex
	changed sync.Cond
	counts  map[reportKey]int
	queue   []func()
	ended   bool
	done    chan struct{}
}

// A reportKey identifies errors that count as the same.
type reportKey struct{ device, kind string }

func newReporter() *reporter {
	r := &reporter{counts: make(map[reportKey]int), done: make(chan struct{})}
	r.changed.L = &r.mu
	go r.run()
	return r
}

func (r *reporter) run() {
	defer close(r.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		for len(r.queue) == 0 {
			if r.ended {
				return
			}
			r.changed.Wait()
		}
		queue := r.queue
		r.queue = nil
		r.mu.Unlock()
		for _, f := range queue {
			f()
		}
		r.mu.Lock()
	}
}

// report queues f, unless the error was reported often enough.
func (r *reporter) report(m reportKey, f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts[m]++; r.counts[m] <= maxReports {
		r.queue = append(r.queue, f)
		r.changed.Signal()
	}
}

// close waits until everything was reported, and reports how many errors were
// suppressed.
func (r *reporter) close(report func(error)) {
	r.mu.Lock()
	r.ended = true
	r.changed.Signal()
	r.mu.Unlock()
	<-r.done
	r.mu.Lock()
	defer r.mu.Unlock()
	for m, n := range r.counts {
		if n > maxReports {
			report(fmt.Errorf("%s: %d more of %q", m.device, n-maxReports, m.kind))
		}
	}
}

// kindOf returns the kind of an error, which is equal for errors that differ in
// numbers.
func kindOf(err error) string {
	var complaint *connectx.Complaint
	var refusal *vfiouser.Error
	switch {
	case errors.As(err, &complaint):
		return complaint.Kind
	case errors.As(err, &refusal):
		return refusal.Kind.Error()
	}
	return "error"
}
