package uverbs

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/verbs"
)

// TestEstablished checks that a QP that the kernel has moved to RTS accepts posts, and that one in a later state stays
// there.
func TestEstablished(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 8}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, MaxSendWR: 4, MaxSendSGE: 1}))(t)
	send := SendWR{Opcode: OpSend}
	_, err := qp.PostSend(send)
	errtest.Is(t, err, ErrState)
	verbs.Established(qp, 1)
	if s := qp.State(); s != StateRTS {
		t.Errorf("state %v", s)
	}
	good(qp.PostSend(send))(t)
	check(t, qp.Modify(QPAttr{State: StateErr}, MaskState))
	verbs.Established(qp, 1)
	if s := qp.State(); s != StateErr {
		t.Errorf("state %v after ERR", s)
	}
	check(t, qp.Close())
	verbs.Established(qp, 1)
	_, err = qp.PostSend(send)
	errtest.Is(t, err, ErrClosed)
}

// TestNoEndpoint checks that QPs of iWARP have none, and their ports no P_Keys.
func TestNoEndpoint(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	peer := good(b.qp.Endpoint())(t)
	r.c.device.NodeType = NodeRNIC
	if keys, err := r.c.PKeys(1); len(keys) != 0 || err != nil {
		t.Errorf("P_Keys %v, %v", keys, err)
	}
	_, err := b.qp.Endpoint()
	errtest.Is(t, err, ErrNotSupported)
	errtest.Is(t, b.qp.Connect(peer), ErrNotSupported)
}
