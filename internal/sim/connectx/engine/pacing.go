package engine

import "time"

// A Rate limits the rate of send queues.
type Rate struct {
	Limit uint32 // in kb/s; 0 means none
	Burst uint32 // how many bytes may be sent at once after a pause; 0 means one frame
}

// SetRate sets an entry of the table of rates. Queues that refer to it change their rate. Entry 0 means no limit.
func (h *HCA) SetRate(index uint16, r Rate) error {
	switch {
	case index == 0:
		return failf(ErrParam, "entry 0 of the table of rates")
	case r.Limit == 0:
		delete(h.eth.rates, index)
	default:
		h.eth.rates[index] = r
	}
	for _, q := range h.eth.sqs.objects {
		if q.RateIndex == index {
			q.pace()
		}
	}
	return nil
}

// Rate returns an entry of the table of rates.
func (h *HCA) Rate(index uint16) Rate { return h.eth.rates[index] }

// SetSQRate makes a send queue refer to an entry of the table of rates.
func (h *HCA) SetSQRate(number uint32, index uint16) error {
	q, err := h.eth.sqs.get(number)
	if err != nil {
		return err
	}
	q.RateIndex = index
	q.pace()
	return nil
}

// pace applies a changed rate from now on.
func (q *SQ) pace() {
	q.due = time.Time{}
	q.resume()
}

// resume sends, or flushes, at once what waits for the queue's next turn.
func (q *SQ) resume() {
	q.later.Stop()
	q.later = nil
	q.run()
}

// duration returns how long the transmission of n bytes takes.
func (r Rate) duration(n uint64) time.Duration {
	return time.Duration(n * 8 * uint64(time.Millisecond) / uint64(r.Limit))
}

// sent accounts for a frame of n bytes: due is when the rate permits the next one.
func (q *SQ) sent(n int) {
	r := q.hca.Rate(q.RateIndex)
	if r.Limit == 0 {
		return
	}
	if now := q.hca.config.Loop.Now(); q.due.Before(now) {
		q.due = now
	}
	q.due = q.due.Add(r.duration(uint64(n)))
}

// wait returns how long the queue must not send.
func (q *SQ) wait() time.Duration {
	r := q.hca.Rate(q.RateIndex)
	if r.Limit == 0 || q.state != QueueReady || q.due.IsZero() || q.stream == nil && q.ring.pending() == 0 {
		return 0
	}
	return q.hca.config.Loop.Until(q.due) - r.duration(uint64(r.Burst))
}
