package loop

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// A schedule decides when deliveries and timers run, by a seed.
type schedule struct {
	random  *rand.Rand
	stepped bool          // Step runs them; else a timer does
	now     time.Duration // of a stepped loop, since epoch
	pending agenda
	last    map[any]time.Duration // when the last pending delivery of each flow is due
	count   uint64
	alarm   *time.Timer // for the first of pending, unless stepped
	start   time.Time
}

// epoch is when the time of a stepped loop begins.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// latency bounds the time that a delivery takes in a loop with a seed.
const latency = 20 * time.Microsecond

// An entry is a delivery or a timer that has not run yet.
type entry struct {
	f      func()
	owner  any
	due    time.Duration
	number uint64 // entries that are due at the same time run in order of creation
	at     int    // index in the agenda; -1: it has run, or was stopped
}

// Seed makes a seed decide the order of deliveries. It must be called before the first step.
func (l *Loop) Seed(seed uint64) {
	l.schedule = &schedule{random: rand.New(rand.NewPCG(seed, 0)), last: map[any]time.Duration{}, start: time.Now()}
}

// SeedSteps is like Seed, but time passes only in Step.
func (l *Loop) SeedSteps(seed uint64) {
	l.Seed(seed)
	l.schedule.stepped, l.schedule.start = true, epoch
}

// Now returns the time of the loop.
func (l *Loop) Now() time.Time {
	if s := l.schedule; s != nil {
		return s.start.Add(s.elapsed())
	}
	return time.Now()
}

// Until returns the time until t by the loop's clock.
func (l *Loop) Until(t time.Time) time.Duration { return t.Sub(l.Now()) }

// Seeded reports whether a seed decides the order of deliveries.
func (l *Loop) Seeded() bool { return l.schedule != nil }

// Deliver runs f after a short time that the seed decides, but after the earlier deliveries of the
// same flow. It must be called in a step of a loop with a seed.
func (l *Loop) Deliver(flow any, f func()) {
	s := l.schedule
	due := s.elapsed() + 1 + time.Duration(s.random.Int64N(int64(latency)))
	if last, ok := s.last[flow]; ok {
		due = max(due, last+1)
	}
	s.last[flow] = due
	l.add(due, func() {
		if s.last[flow] == due {
			delete(s.last, flow)
		}
		f()
	})
}

// Step runs the first delivery or timer of a stepped loop and what it causes at once, and sets the
// clock to its time. It returns false if there is none.
func (l *Loop) Step() bool {
	ran := false
	l.Run(func() {
		s := l.schedule
		if l.stopped || len(s.pending) == 0 {
			return
		}
		ran = true
		l.first()
	})
	return ran
}

func (s *schedule) elapsed() time.Duration {
	if s.stepped {
		return s.now
	}
	return time.Since(s.start)
}

// add adds an entry.
func (l *Loop) add(due time.Duration, f func()) *entry {
	s := l.schedule
	s.count++
	e := &entry{f: f, owner: l.owner, due: due, number: s.count}
	heap.Push(&s.pending, e)
	l.setAlarm()
	return e
}

// remove removes an entry. It reports whether the entry was there.
func (l *Loop) remove(e *entry) bool {
	if e.at < 0 {
		return false
	}
	heap.Remove(&l.schedule.pending, e.at)
	l.setAlarm()
	return true
}

// first runs the first entry.
func (l *Loop) first() {
	s := l.schedule
	e := heap.Pop(&s.pending).(*entry)
	s.now = max(s.now, e.due)
	l.As(e.owner, e.f)
}

// setAlarm sets the timer to the first entry.
func (l *Loop) setAlarm() {
	s := l.schedule
	if s.stepped {
		return
	}
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	if len(s.pending) > 0 {
		s.alarm = time.AfterFunc(s.pending[0].due-s.elapsed(), func() { l.Run(l.expire) })
	}
}

// expire runs the first entry if it is due. Those that are due after it run in separate steps, so
// that what the first one causes comes before them.
func (l *Loop) expire() {
	s := l.schedule
	if l.stopped || len(s.pending) == 0 {
		return
	}
	defer l.setAlarm() // also if the entry panics
	if s.pending[0].due <= s.elapsed() {
		l.first()
	}
}

// An agenda is a heap of entries.
type agenda []*entry

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	if a[i].due != a[j].due {
		return a[i].due < a[j].due
	}
	return a[i].number < a[j].number
}

func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].at, a[j].at = i, j
}

// Push implements heap.Interface.
func (a *agenda) Push(x any) {
	e := x.(*entry)
	e.at = len(*a)
	*a = append(*a, e)
}

// Pop implements heap.Interface.
func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	e.at = -1
	return e
}
