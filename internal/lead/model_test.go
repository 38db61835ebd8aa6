package lead

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
)

// TestAllInterleavings runs calls that wait in every order in which they can get the lock and return from a poll, and
// in which completions come, deadlines pass and the connection is closed in between.
func TestAllInterleavings(t *testing.T) {
	defer func(f func(any, bool)) { verbs.Interrupt = f }(verbs.Interrupt)
	verbs.Interrupt = func(m any, on bool) { m.(*model).interrupted = on }
	states := 0
	synctest.Test(t, func(t *testing.T) {
		for _, s := range scenarios() {
			states += explore(t, s)
			if len(s.calls) < 4 { // more take seconds
				s.polls = true
				states += explore(t, s)
			}
		}
	})
	t.Logf("%d states", states)
}

// A scenario is what happens to calls, in any order.
type scenario struct {
	calls  string // each is one that waits for (o) its own completion, or for (c) a credit
	events []event
	polls  bool // calls poll before they wait, and release the lock if there was something
}

type event struct {
	what string // that completes, cancels or expires a call, gives a credit without a completion, or closes
	call int
}

// scenarios returns those for up to four calls: the ctx of one ends and the deadline of one passes, while up to two get
// what they wait for, or one does, also without a completion, or one does and the connection is closed.
func scenarios() (all []scenario) {
	for _, calls := range []string{"o", "c", "oo", "oc", "cc", "ooo", "oco", "ccc", "ooco", "cccc"} {
		var gets []event
		for i, kind := range calls {
			if kind == 'o' {
				gets = append(gets, event{"complete", i})
			} else {
				gets = append(gets, event{"credit", 0})
			}
		}
		for i := range calls {
			leave := []event{{"cancel", i}, {"expire", (i + 1) % len(calls)}}
			all = append(all, scenario{calls: calls, events: append(leave, gets[:min(len(calls), 2)]...)})
			all = append(all, scenario{calls: calls, events: append(leave, gets[0], event{"close", 0})})
			if strings.Contains(calls, "c") {
				all = append(all, scenario{calls: calls, events: append(leave, event{"give", 0})})
			}
		}
	}
	return all
}

// explore runs a scenario in all orders, and returns how many states it has found.
func explore(t *testing.T, s scenario) int {
	seen := map[string]bool{}
	for todo := [][]int{nil}; len(todo) > 0; {
		path := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		m := newModel(t, s)
		for _, choice := range path {
			m.step(m.choices()[choice])
		}
		for {
			key := m.key()
			choices := m.choices()
			if seen[key] || len(choices) == 0 {
				break
			}
			seen[key] = true
			for i := 1; i < len(choices); i++ {
				todo = append(todo, append(slices.Clone(path), i))
			}
			path = append(path, 0)
			m.step(choices[0])
		}
		m.end()
		if t.Failed() {
			t.Fatalf("%s, %v:\n%s", s.calls, s.events, strings.Join(m.log, "\n"))
		}
	}
	return len(seen)
}

// A model is a connection whose goroutines stop when they acquire the lock and while they poll, until a choice lets one
// of them go on.
type model struct {
	t      *testing.T
	ws     Waiters
	calls  []*call
	polls  bool // as in scenario
	events []event
	log    []string

	queue       []event // what has completed and was not polled
	polled      []event
	credits     int
	closed      bool
	interrupted bool

	mu         sync.Mutex
	goroutines map[string]*call
}

// A call is a goroutine that waits.
type call struct {
	Side
	m      *model
	credit bool // what it waits for
	ctx    context.Context
	cancel context.CancelFunc
	done   bool // its own completion was handled

	at     place
	permit chan struct{}
	result error
}

type place string

const (
	begins   place = "begins"
	polls    place = "polls"
	polled   place = "has polled" // and acquires the lock
	sleeps   place = "sleeps"
	woken    place = "was woken" // and acquires the lock
	leaves   place = "leaves"    // its ctx has ended while it slept: it acquires the lock
	relocks  place = "relocks"   // it acquires the lock
	returned place = "has returned"
)

const (
	needOwn = iota
	needCredit
)

var errClosed, errExpired = errors.New("closed"), errors.New("expired")

func newModel(t *testing.T, s scenario) *model {
	m := &model{t: t, polls: s.polls, events: slices.Clone(s.events), goroutines: map[string]*call{}}
	m.ws = Waiters{Lock: m.lock, Unlock: func() { m.ws.Pass() }, Poll: m.poll, Handle: m.handle, CQ: m,
		Ready: func(need int) bool { return need == needCredit && m.credits > 0 }}
	for i, kind := range s.calls {
		c := &call{m: m, credit: kind == 'c', at: begins, permit: make(chan struct{})}
		c.Waiters, c.Turn = &m.ws, uint64(i)
		if c.credit {
			c.Need, c.Yields = needCredit, true
		}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		m.calls = append(m.calls, c)
		go c.run()
	}
	synctest.Wait()
	return m
}

// run is the call: it waits until it has what it needs.
func (c *call) run() {
	c.m.mu.Lock()
	c.m.goroutines[goroutine()] = c
	c.m.mu.Unlock()
	<-c.permit
	c.at = sleeps // unless it goes on
	for c.result == nil && !c.has() {
		switch {
		case c.m.closed:
			c.result = errClosed
		case c.Expired:
			c.result = errExpired
		case c.ctx.Err() != nil:
			c.result = c.ctx.Err()
		case c.m.polls && c.m.ws.leader == nil && len(c.m.queue) > 0:
			c.m.pollQueue()
			c.result = c.m.handle(len(c.m.polled), nil)
			c.at = relocks
			c.m.ws.Relock()
		default:
			c.result = c.m.ws.Wait(c.ctx, &c.Waiter)
		}
	}
	c.at = returned
	c.m.ws.Unlock()
}

// has reports whether the call has what it needs, and uses it.
func (c *call) has() bool {
	if c.credit && c.m.credits > 0 {
		c.m.credits--
		return true
	}
	return c.done
}

// goroutine identifies the caller.
func goroutine() string {
	var b [32]byte
	id, _, _ := strings.Cut(string(b[:runtime.Stack(b[:], false)]), "[")
	return id
}

// lock is called when a call has polled, no longer sleeps, or relocks.
func (m *model) lock() {
	m.mu.Lock()
	c := m.goroutines[goroutine()]
	m.mu.Unlock()
	switch {
	case c.at == polls:
		c.at = polled
	case c.at == relocks:
	case c.asleep:
		c.at = leaves
	default:
		c.at = woken
	}
	<-c.permit
	c.at = sleeps // unless it goes on
}

// poll returns what has completed, or why it ends.
func (m *model) poll(ctx context.Context) (int, error) {
	c := m.calls[m.ws.leader.Turn]
	c.at = polls
	<-c.permit
	m.pollQueue()
	switch {
	case len(m.polled) > 0:
		return len(m.polled), nil
	case m.interrupted:
		return 0, verbs.ErrInterrupted
	}
	return 0, ctx.Err()
}

func (m *model) pollQueue() { m.polled, m.queue = m.queue, nil }

// handle handles what has completed.
func (m *model) handle(n int, err error) error {
	if err != nil || n != len(m.polled) {
		m.t.Errorf("Handle(%d, %v): %d have completed", n, err, len(m.polled))
	}
	for _, e := range m.polled {
		if e.what == "credit" {
			m.credits++
		} else {
			m.calls[e.call].done = true
			m.ws.Wake(&m.calls[e.call].Waiter)
		}
	}
	m.polled = nil
	return nil
}

// choices returns what can happen next: an event, or a call that goes on. Calls begin in order, as they differ in
// nothing but their number.
func (m *model) choices() (all []event) {
	for i, c := range m.calls {
		switch c.at {
		case begins:
			if i == 0 || m.calls[i-1].at != begins {
				all = append(all, event{"go on", i})
			}
		case polled, woken, leaves, relocks:
			all = append(all, event{"go on", i})
		case polls:
			if len(m.queue) > 0 || m.interrupted || c.ctx.Err() != nil {
				all = append(all, event{"go on", i})
			}
		}
	}
	if len(all) == 0 {
		m.checkIdle()
	}
	for i, e := range m.events {
		if !slices.Contains(m.events[:i], e) {
			all = append(all, e)
		}
	}
	return all
}

// step makes a choice, and returns when all goroutines have stopped.
func (m *model) step(e event) {
	c := m.calls[e.call]
	m.log = append(m.log, fmt.Sprintf("%s %d, which %s", e.what, e.call, c.at))
	before := m.sleepers()
	switch e.what {
	case "go on":
		c.permit <- struct{}{}
	case "complete", "credit":
		m.queue = append(m.queue, e)
	case "cancel":
		c.cancel()
	case "expire":
		c.SetDeadline(time.Unix(1, 0))
		m.ws.Unlock()
	case "give":
		m.credits++
		m.ws.Unlock()
	case "close":
		m.closed = true
		m.ws.WakeAll()
		m.ws.Interrupt(m.ws.leader)
		m.ws.Unlock()
	}
	if i := slices.Index(m.events, e); i >= 0 {
		m.events = slices.Delete(m.events, i, i+1)
	}
	synctest.Wait()
	m.check(e, before)
}

// sleepers returns the calls that are asleep.
func (m *model) sleepers() (all []*call) {
	for _, c := range m.calls {
		if c.asleep {
			all = append(all, c)
		}
	}
	return all
}

// check checks what is true at any time, and which calls of those that were asleep a step has woken.
func (m *model) check(e event, before []*call) {
	for i, c := range m.calls {
		if (c.at == polls || c.at == polled) != (m.ws.leader == &c.Waiter) {
			m.t.Errorf("call %d %s, and the leader is another", i, c.at)
		}
		if c.at == sleeps != c.asleep && c.at != leaves {
			m.t.Errorf("call %d %s, and should not", i, c.at)
		}
		if c.at == returned && !c.done && !c.credit && c.result == nil {
			m.t.Errorf("call %d has returned without its completion", i)
		}
		if c.at == returned && len(c.wake) > 0 {
			m.t.Errorf("call %d has returned, and a wakeup remains for the next call with its Waiter", i)
		}
		if c.asleep && c.credit && m.credits > 0 && m.ws.woken == 0 {
			m.t.Errorf("call %d is asleep and could go on", i)
		}
	}
	if e.what != "go on" {
		return // an interrupt and the end of a ctx wake their call
	}
	for _, w := range before {
		if w.asleep || w.done || w == m.calls[e.call] { // or it has left
			continue
		}
		leads := !w.credit || m.credits == 0
		if leads && m.calls[e.call].at == relocks {
			m.t.Errorf("call %d is woken to lead, which call %d does", w.Turn, e.call)
		}
		for i, c := range m.calls {
			if c.at == sleeps && c.Turn < w.Turn && (leads || c.credit) {
				m.t.Errorf("call %d is asleep, and call %d is woken before its turn", i, w.Turn)
			}
		}
	}
}

// checkIdle checks, when no call can go on, that one of those that wait polls, and that no event was missed.
func (m *model) checkIdle() {
	waiting := 0
	for i, c := range m.calls {
		if c.at == returned {
			continue
		}
		waiting++
		if c.done || c.credit && m.credits > 0 || m.closed || c.Expired || c.ctx.Err() != nil {
			m.t.Errorf("call %d waits forever: it %s", i, c.at)
		}
	}
	if waiting > 0 && m.ws.leader == nil {
		m.t.Errorf("%d calls wait, and none leads", waiting)
	}
}

// key identifies the state.
func (m *model) key() string {
	var b strings.Builder
	for _, c := range m.calls {
		fmt.Fprint(&b, c.at, c.asleep, len(c.wake), c.done, c.Expired, c.ctx.Err(), c.result, ";")
	}
	fmt.Fprint(&b, m.events, m.queue, m.polled, m.credits, m.closed, m.interrupted, m.ws.woken, m.ws.leader != nil)
	return b.String()
}

// end ends the calls.
func (m *model) end() {
	m.events = []event{{"close", 0}}
	for choices := m.choices(); len(choices) > 0; choices = m.choices() {
		m.step(choices[0])
	}
	for i, c := range m.calls {
		if c.at != returned {
			m.t.Errorf("call %d waits forever: it %s", i, c.at)
		}
		c.cancel()
	}
}
