package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// What the device offers is told, what is set is asked for once, and what was
// granted is told from then on.
func TestECE(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE }
	d := newDesk(t, k)
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	q := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, Access: allAccess &^ uverbs.MWBindAccess}))(t)
	if e := good(q.QueryECE())(t); e != (uverbs.ECE{VendorID: 0x15b3, Options: softECE}) {
		t.Errorf("the QP offers %+v", e)
	}
	if err := q.SetECE(uverbs.ECE{VendorID: 1, Options: 5}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("options of another vendor: %v", err)
	}
	check(t, q.SetECE(uverbs.ECE{VendorID: 0x15b3, Options: 6}))
	check(t, q.Connect(good(q.Endpoint())(t)))
	if e := good(q.QueryECE())(t); e.Options != 6&softECE {
		t.Errorf("the QP has got %+v", e)
	}
	if n := d.s.Count("MODIFY_QP_EX"); n != 1 {
		t.Errorf("options were asked for %d times", n)
	}
	d.write(t, q, 3)
	poll(t, cq, 3)
	check(t, q.Close())
	if _, err := q.QueryECE(); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("QueryECE after Close: %v", err)
	}
	plain := newDesk(t, standard())
	p := plain.loop(t, uverbs.QPConfig{SendCQ: good(plain.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)})
	if e := good(p.QueryECE())(t); e.Options != 0 {
		t.Errorf("a device without options has %+v", e)
	}
	if err := p.SetECE(uverbs.ECE{VendorID: 0x15b3, Options: 1}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("SetECE: %v", err)
	}
}
