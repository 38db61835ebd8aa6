package mlx5

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/call"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// TestOutOfOrder sends messages over a QP whose packets overtake others, with a full receive queue. They must complete
// in order, each with the WRID of the receive that it used, and some must have used another one than the oldest.
func TestOutOfOrder(t *testing.T) {
	const depth, rounds = 16, 100
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 2 * depth}))(t)
	q := d.loop(t, uverbs.QPConfig{SendCQ: cq, Options: &QPOptions{OutOfOrder: true}})
	if n := q.Cap().MaxRecvWR; n != depth {
		t.Errorf("the QP has room for %d receives", n)
	}
	if a := good(q.Query(uverbs.MaskState))(t); a.Cap.MaxRecvWR != depth {
		t.Errorf("Query says %d receives", a.Cap.MaxRecvWR)
	}
	oldest, others := []uint64{}, 0
	receive := func(id uint64) {
		good(q.PostRecv(uverbs.RecvWR{WRID: id, SGL: []uverbs.SGE{d.mr.SGE(int(id%depth)*64, 8)}}))(t)
		oldest = append(oldest, id)
	}
	for i := range uint64(depth) {
		receive(i)
	}
	if _, err := q.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrQueueFull) {
		t.Errorf("one receive too many: %v", err)
	}
	wcs := make([]uverbs.WC, 2*depth)
	for round := range uint64(rounds) {
		var sends []uverbs.SendWR
		for i := range uint64(depth / 2) {
			sends = append(sends, uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: uint32(round*depth + i),
				SGL: []uverbs.SGE{d.mr.SGE(4096+int(i)*8, 8)}})
		}
		sends[depth/2-1].Flags = uverbs.Signaled
		good(q.PostSend(sends...))(t)
		n := 0
		for deadline := time.Now().Add(10 * time.Second); n < depth/2+1; runtime.Gosched() {
			if n += good(cq.Poll(wcs[n:]))(t); time.Now().After(deadline) {
				t.Fatalf("round %d: %d completions", round, n)
			}
		}
		got := slices.DeleteFunc(wcs[:n:n], func(wc uverbs.WC) bool { return wc.Opcode == uverbs.WCSend })
		for i, wc := range got {
			if wc.Imm != uint32(round*depth)+uint32(i) || wc.Status != uverbs.WCSuccess {
				t.Errorf("round %d: completion %d is %+v", round, i, wc)
			}
			at := slices.Index(oldest, wc.WRID)
			if at < 0 {
				t.Fatalf("round %d: WRID %d was not posted, or completed before", round, wc.WRID)
			}
			if at > 0 {
				others++
			}
			oldest = slices.Delete(oldest, at, at+1)
		}
		for i := range uint64(depth / 2) {
			receive(1000 + round*depth + i)
		}
	}
	if others == 0 {
		t.Error("all receives completed in the order in which they were posted")
	}
}

// TestOutOfOrderCommands checks that the kernel gets a ring of twice the size, and the flag in the transition to INIT
// only, with the extended form of all transitions.
func TestOutOfOrderCommands(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	var slots uint32
	var masks []uint32
	d.s.Set(func() {
		d.s.OnCommand = func(c ioctl.Call) {
			const modifyEx = uapi.IB_USER_VERBS_EX_CMD_MODIFY_QP | uapi.IB_USER_VERBS_CMD_FLAG_EXTENDED
			switch h := c.Header(); {
			case h.ObjectId == uapi.UVERBS_OBJECT_QP && h.MethodId == uapi.UVERBS_METHOD_QP_CREATE:
				slots = call.In[uapi.Mlx5IbCreateQp](c, uapi.UVERBS_ATTR_UHW_IN).RqWqeCount
			case call.Num(c, uapi.UVERBS_ATTR_WRITE_CMD) == modifyEx:
				masks = append(masks, call.In[uapi.Mlx5IbModifyQp](c, uapi.UVERBS_ATTR_UHW_IN).CompMask)
			}
		}
	})
	for _, c := range []struct {
		options any
		slots   uint32
		masks   []uint32
	}{
		{&QPOptions{OutOfOrder: true}, 32, []uint32{1, 0, 0}},
		{&QPOptions{}, 16, nil},
		{(*QPOptions)(nil), 16, nil},
	} {
		slots, masks = 0, nil
		check(t, d.loop(t, uverbs.QPConfig{SendCQ: cq, Options: c.options}).Close())
		if slots != c.slots || !slices.Equal(masks, c.masks) {
			t.Errorf("%+v: %d slots, masks %v", c.options, slots, masks)
		}
	}
	d.s.Set(func() { d.s.OnCommand = nil })
}

// TestOutOfOrderRefusals checks that CreateQP refuses what the device cannot do before the kernel creates anything.
func TestOutOfOrderRefusals(t *testing.T) {
	d := newDesk(t, standard())
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 15}))(t)
	a := good(QueryDevice(d.c))(t)
	if want := (uverbs.DCIStreams{Concurrent: 64, Errored: 64}); a.DCIStreams != want {
		t.Errorf("the limits of streams are %+v, want %+v", a.DCIStreams, want)
	}
	limits := a.OutOfOrder
	if want := (OutOfOrderLimits{RC: 1 << 14, XRC: 1 << 15, DCT: 1 << 15}); limits != want {
		t.Errorf("the limits are %+v, want %+v", limits, want)
	}
	created := 0
	count := func(c ioctl.Call) {
		if h := c.Header(); h.ObjectId == uapi.UVERBS_OBJECT_QP && h.MethodId == uapi.UVERBS_METHOD_QP_CREATE {
			created++
		}
	}
	d.s.Set(func() { d.s.OnCommand = count })
	refused := func(name string, want error, text string, cfg uverbs.QPConfig) {
		t.Helper()
		cfg.SendCQ, cfg.MaxSendWR = cq, 1
		if _, err := d.pd.CreateQP(cfg); !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: %v, want %v and %q", name, err, want, text)
		}
	}
	option := &QPOptions{OutOfOrder: true}
	refused("another type", uverbs.ErrNotSupported, "*int", uverbs.QPConfig{Type: uverbs.RC, Options: new(int)})
	refused("a struct", uverbs.ErrNotSupported, "mlx5.QPOptions", uverbs.QPConfig{Type: uverbs.RC, Options: *option})
	refused("UD", uverbs.ErrNotSupported, "UD", uverbs.QPConfig{Type: uverbs.UD, Options: option})
	refused("UC", uverbs.ErrNotSupported, "UC", uverbs.QPConfig{Type: uverbs.UC, Options: option})
	refused("too many", uverbs.ErrInvalid, "16384",
		uverbs.QPConfig{Type: uverbs.RC, MaxRecvWR: limits.RC + 1, Options: option})
	d.s.Set(func() { d.s.NoOutOfOrder = true })
	refused("no such device", uverbs.ErrNotSupported, "RC", uverbs.QPConfig{Type: uverbs.RC, Options: option})
	if a := good(QueryDevice(d.c))(t); a.OutOfOrder != (OutOfOrderLimits{}) {
		t.Errorf("a device without out-of-order QPs has %+v", a)
	}
	if created != 0 {
		t.Errorf("%d QPs were created", created)
	}
	d.s.Set(func() { d.s.OnCommand = nil })
	if _, err := QueryDevice(nil); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("a nil context: %v", err)
	}
	check(t, d.c.Close())
	if _, err := QueryDevice(d.c); !errors.Is(err, uverbs.ErrClosed) {
		t.Errorf("a closed context: %v", err)
	}
}
