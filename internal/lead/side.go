package lead

import "time"

// A Side is a Waiter whose calls run one at a time, and whose deadline can be set while one waits. Its fields and
// methods need the lock.
type Side struct {
	Waiter
	Waiters *Waiters
	Expired bool // the deadline has passed

	deadline time.Time
	timer    *time.Timer
}

// Interrupt makes the call that waits look at its state.
func (s *Side) Interrupt() { s.Waiters.Interrupt(&s.Waiter) }

// SetDeadline sets the time at which Expired is set and the call that waits is interrupted. The zero time stands for
// never.
func (s *Side) SetDeadline(t time.Time) {
	if s.timer != nil {
		s.timer.Stop() // or it runs, and finds another deadline
	}
	s.deadline, s.Expired = t, false
	if t.IsZero() {
		return
	}
	d := time.Until(t)
	s.deadline = time.Now().Add(d) // the monotonic clock is never set back
	switch {
	case d <= 0:
		s.expire()
	case s.timer == nil:
		s.timer = time.AfterFunc(d, s.check)
	default:
		s.timer.Reset(d)
	}
}

func (s *Side) check() {
	s.Waiters.Lock()
	defer s.Waiters.Unlock()
	if !s.deadline.IsZero() && time.Until(s.deadline) <= 0 {
		s.expire()
	}
}

func (s *Side) expire() {
	s.Expired = true
	s.Interrupt()
}
