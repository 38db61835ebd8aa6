package mlx5

import (
	"bytes"
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestNullMR checks that a receive skips part of a message, and that data sent from the null MR is zero.
func TestNullMR(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) {
		r.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_DUMP_FILL_MKEY
		r.DumpFillMkey = engine.NullMKey
	}
	d := newDesk(t, k)
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	null := good(d.pd.AllocNullMR())(t)
	q := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 3,
		MaxRecvSGE: 3}))(t)
	check(t, q.Connect(good(q.Endpoint())(t)))
	copy(d.mr.Bytes(), "first second third")
	_, err := q.PostRecv(uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{d.mr.SGE(1000, 6), null.SGE(0, 7), d.mr.SGE(1006, 100)}})
	check(t, err)
	_, err = q.PostSend(uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{d.mr.SGE(0, 18), null.SGE(5, 3)}})
	check(t, err)
	for range 2 {
		if wc := one(t, cq); wc.Err() != nil || wc.WRID == 1 && wc.ByteLen != 21 {
			t.Fatalf("%+v", wc)
		}
	}
	if got := d.mr.Bytes()[1000:][:15]; !bytes.Equal(got, append([]byte("first third"), 0, 0, 0, 0)) {
		t.Errorf("%q arrived", got)
	}
	if _, err := newDesk(t, standard()).pd.AllocNullMR(); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("AllocNullMR: %v", err)
	}
}
