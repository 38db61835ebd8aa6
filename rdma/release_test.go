package rdma

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestCloseTriesAgain has Close fail to release a completion queue, which a QP of the program uses: a further call
// releases it.
func TestCloseTriesAgain(t *testing.T) {
	clients, servers, _ := honestConns(t, 2, nil, nil)
	c, budget := servers[0], servers[0].account.budget
	if err := clients[0].Send(bounded(t), make([]byte, 100000)); err != nil {
		t.Fatal(err)
	}
	m, err := c.Recv(bounded(t))
	good(t, m, err).Release()
	qp, err := c.cm.PD().CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: c.cq, RecvCQ: c.cq, MaxSendWR: 1, MaxRecvWR: 1,
		MaxSendSGE: 1, MaxRecvSGE: 1})
	good(t, qp, err)
	refs := c.pool.refs
	if err := c.Close(); err == nil {
		t.Error("Close returns nil")
	}
	if err := qp.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Errorf("a further call of Close returns %v", err)
		}
	}
	if _, err := c.cq.Poll(make([]uverbs.WC, 1)); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("Poll of the completion queue returns %v", err)
	}
	if c.pool.refs != refs-1 {
		t.Errorf("the pool has %d connections after Close, %d before", c.pool.refs, refs)
	}
	_, used := budget.used.Used(servers[1].account.peer)
	if used != servers[1].account.fixed {
		t.Errorf("%d bytes are used, %d of them by the other connection", used, servers[1].account.fixed)
	}
}
