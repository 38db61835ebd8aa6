package transport

import "time"

// watch runs the timer while a response is expected.
func (s *sender) watch() {
	d := AckTime(s.e.config.AckTimeout)
	switch {
	case !s.running || s.waiting:
	case distance(s.sent, s.unacked) <= 0 || d == 0:
		s.timer.stop()
	case !s.timer.set:
		s.timer.start(s.e.loop, d, s.timeout)
	}
}

// timeout runs when no response came in time.
func (s *sender) timeout() {
	s.recovering = false
	if s.stalled != nil { // nothing can be sent again
		s.watch()
		return
	}
	s.retry()
}

// retry goes back to the oldest unacknowledged packet, if there are retries
// left.
func (s *sender) retry() {
	if s.recovering {
		return
	}
	if s.retries == 0 && !s.changePath() {
		s.fail(TransportRetry)
		return
	}
	if !s.running {
		return
	}
	s.retries--
	s.recovering = true
	s.goBack()
}

// changePath migrates to the alternate path, if that is armed, with the full
// number of retries.
func (s *sender) changePath() bool {
	if s.e.config.Migration != Armed {
		return false
	}
	s.e.migrate()
	s.retries = s.e.config.RetryCount + 1 // the first attempt does not count
	return true
}

// goBack makes the oldest unacknowledged packet the next one to send.
func (s *sender) goBack() {
	s.at, s.part = len(s.queue), 0
	for i, r := range s.queue {
		if r.way.packets > 0 && distance(r.way.last, s.unacked) >= 0 {
			s.at, s.part = i, max(0, distance(s.unacked, r.way.first))
			break
		}
	}
	s.timer.stop()
	s.e.schedule()
}

// wait stops sending for the time of an RNR NAK.
func (s *sender) wait(d time.Duration) {
	s.waiting = true
	s.timer.stop()
	s.timer.start(s.e.loop, d, func() {
		s.waiting, s.recovering = false, false
		s.goBack()
	})
}

// fail ends the oldest unacknowledged request with an error, and stops sending.
func (s *sender) fail(why Syndrome) {
	s.stop()
	if len(s.queue) == 0 {
		return
	}
	r := s.queue[0]
	s.pop()
	s.e.queues.Done(r, why)
}
