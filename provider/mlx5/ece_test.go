package mlx5

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/sim/fakemlx5"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestECECommands checks that CREATE_QP requests options of version 1 if the firmware has ECE options, and that
// MODIFY_QP requests the options that were set, once, in the fields that libmlx5 uses. Other firmware receives no such
// requests.
func TestECECommands(t *testing.T) {
	for _, has := range []bool{true, false} {
		k := standard()
		k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) {
			if has {
				r.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE
			}
		}
		d := newDesk(t, k)
		var created, modified []uint32
		const modifyEx = uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED
		d.s.Set(func() {
			d.s.OnCommand = func(c ioctl.Call) {
				switch h := c.Header(); {
				case h.ObjectId == uapi.UVERBS_OBJECT_QP && h.MethodId == uapi.UVERBS_METHOD_QP_CREATE:
					created = append(created, call.In[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN).EceOptions)
				case call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) == modifyEx:
					modified = append(modified, call.In[uapi.Mlx5IbModifyQp](c, uapi.UVERBS_ATTR_UHW_IN).EceOptions)
				}
			}
		})
		d.loop(t, uverbs.QPConfig{SendCQ: good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)})
		d.s.Set(func() { d.s.OnCommand = nil })
		var version, asked []uint32
		if version = []uint32{0}; has {
			version, asked = []uint32{0x10000000}, []uint32{fakemlx5.ECEOptions}
		}
		if !slices.Equal(created, version) || !slices.Equal(modified, asked) {
			t.Errorf("ECE is there: %t; CREATE_QP asks for %#x, MODIFY_QP for %#x; want %#x, and %#x", has, created, modified,
				version, asked)
		}
	}
}

// TestECE checks that QueryECE returns the options that the device offers, that SetECE requests options once, and that
// QueryECE then returns the granted ones.
func TestECE(t *testing.T) {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.CompMask |= uapi.MLX5_IB_ALLOC_UCONTEXT_RESP_MASK_ECE }
	d := newDesk(t, k)
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	q := good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4,
		Access: allAccess &^ uverbs.MWBindAccess}))(t)
	if e := good(q.QueryECE())(t); e != (uverbs.ECE{VendorID: 0x15b3, Options: fakemlx5.ECEOptions}) {
		t.Errorf("the QP offers %+v", e)
	}
	if err := q.SetECE(uverbs.ECE{VendorID: 1, Options: 5}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("options of another vendor: %v", err)
	}
	check(t, q.SetECE(uverbs.ECE{VendorID: 0x15b3, Options: 6}))
	check(t, q.Connect(good(q.Endpoint())(t)))
	if e := good(q.QueryECE())(t); e.Options != 6&fakemlx5.ECEOptions {
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
	// Connect sets the options that both ends have.
	q = good(d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4,
		Access: allAccess &^ uverbs.MWBindAccess}))(t)
	remote := good(q.Endpoint())(t)
	remote.ECE.Options = fakemlx5.ECEOptions &^ 1
	check(t, q.Connect(remote))
	if e := good(q.QueryECE())(t); e.Options != fakemlx5.ECEOptions&^1 {
		t.Errorf("Connect has got %+v, where the peer offers %+v", e, remote.ECE)
	}
	check(t, q.Close())
	plain := newDesk(t, standard())
	p := plain.loop(t, uverbs.QPConfig{SendCQ: good(plain.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)})
	if e := good(p.QueryECE())(t); e.Options != 0 {
		t.Errorf("a device without options has %+v", e)
	}
	if err := p.SetECE(uverbs.ECE{VendorID: 0x15b3, Options: 1}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("SetECE: %v", err)
	}
}
