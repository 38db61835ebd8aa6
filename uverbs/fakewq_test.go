package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/leak"
)

// fakeWQ keeps posted requests until a test completes them.
type fakeWQ struct {
	recv    solo
	cap     QPCap
	posted  []uint64
	resets  int
	ticket  *leak.Ticket
	modform []byte // the provider's input of MODIFY_WQ
}

func (c *fakeContext) CreateWQ(_ *driver.WQConfig, create driver.Command) (providerWQ, driver.Reply, error) {
	r, err := create([]byte("the vendor's part"), nil)
	if err != nil {
		return nil, r, err
	}
	if c.p.mapError != nil {
		return nil, r, c.p.mapError
	}
	q := &fakeWQ{cap: QPCap(r.Cap), ticket: leak.Track("ring of", "WQ"), modform: make([]byte, 8)}
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.wqs = append(c.p.wqs, q)
	return q, r, nil
}

func (q *fakeWQ) PostRecv(wrs []RecvWR) (int, error) {
	q.recv.enter()
	defer q.recv.leave()
	for n := range wrs {
		switch {
		case len(wrs[n].SGL) > q.cap.MaxRecvSGE:
			return n, ErrTooManySGEs
		case len(q.posted) == q.cap.MaxRecvWR:
			return n, ErrQueueFull
		}
		q.posted = append(q.posted, wrs[n].WRID)
	}
	return len(wrs), nil
}

func (q *fakeWQ) Modify(modify driver.Command) error {
	_, err := modify(q.modform, nil)
	return err
}

func (q *fakeWQ) Outstanding() int { return len(q.posted) }

func (q *fakeWQ) Reset() error {
	q.recv.enter()
	defer q.recv.leave()
	q.posted = nil
	q.resets++
	return nil
}

func (q *fakeWQ) Retire() error {
	q.ticket.Done()
	return nil
}
