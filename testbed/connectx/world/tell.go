package world

import (
	"errors"
	"fmt"
	"sync"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
)

// mostTold is how often the same is told of a device: a guest can do it a
// million times.
const mostTold = 100

// A teller tells in a goroutine of its own what goes wrong, so that nobody who
// listens slowly holds the loop up.
type teller struct {
	mu     sync.Mutex
	news   sync.Cond
	counts map[matter]int
	queue  []func()
	ended  bool
	done   chan struct{}
}

// A matter is what is the same.
type matter struct{ device, kind string }

func newTeller() *teller {
	t := &teller{counts: make(map[matter]int), done: make(chan struct{})}
	t.news.L = &t.mu
	go t.run()
	return t
}

func (t *teller) run() {
	defer close(t.done)
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		for len(t.queue) == 0 {
			if t.ended {
				return
			}
			t.news.Wait()
		}
		queue := t.queue
		t.queue = nil
		t.mu.Unlock()
		for _, f := range queue {
			f()
		}
		t.mu.Lock()
	}
}

// tell makes f run, unless the matter was told often enough.
func (t *teller) tell(m matter, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[m]++; t.counts[m] <= mostTold {
		t.queue = append(t.queue, f)
		t.news.Signal()
	}
}

// close waits until all is told, and reports how much was not.
func (t *teller) close(report func(error)) {
	t.mu.Lock()
	t.ended = true
	t.news.Signal()
	t.mu.Unlock()
	<-t.done
	t.mu.Lock()
	defer t.mu.Unlock()
	for m, n := range t.counts {
		if n > mostTold {
			report(fmt.Errorf("%s: %d more of %q", m.device, n-mostTold, m.kind))
		}
	}
}

// kindOf is what is the same of errors that differ in numbers.
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
