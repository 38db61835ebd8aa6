package uverbs

import "fmt"

// overran is called when the kernel reports EventCQErr. rxe drops each completion that finds
// the queue full and continues. mlx5 stops the queue.
func (q *CQ) overran() {
	if q.failure.Load() == nil {
		q.fail(q.overrunError())
	}
}

// overrunError returns the error that polls return from then on. It names the QPs' limits if
// these may be the cause.
func (q *CQ) overrunError() error {
	sends, recvs := q.ctx.maxOutstanding(q)
	detail := fmt.Sprintf("it holds %d completions and was full when more came, which are lost", q.Entries())
	if n := sends + recvs; n > q.Entries() {
		detail += fmt.Sprintf(", and its QPs can have %d requests outstanding (%d sends and %d receives)", n, sends, recvs)
	}
	detail += ": close it with its QPs, and create it with more Entries, or poll it before posting more signaled requests"
	return &Error{Op: "poll", Object: q.String(), Kind: ErrCQOverrun, Detail: detail}
}

// maxOutstanding returns how many requests can be outstanding whose completions go to q, if
// every send is signaled.
func (c *Context) maxOutstanding(q *CQ) (sends, recvs int) {
	u := c.use(q)
	for _, o := range u.senders {
		sends += o.cap.MaxSendWR
	}
	for _, o := range u.receivers {
		recvs += o.cap.MaxRecvWR
	}
	return sends, recvs + u.sharedRecvs()
}
