package irdma_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeirdma"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// Devices that the provider does not know are refused, and so is a reply that cannot be right.
func TestRefused(t *testing.T) {
	e810 := func(change func(*uapi.IrdmaAllocUcontextResp)) fakeirdma.Config {
		return fakeirdma.Config{Generation: 2, Limits: change}
	}
	for name, c := range map[string]struct {
		cfg  fakeirdma.Config
		want error
		text string
	}{
		"i40iw":      {fakeirdma.Config{}, uverbs.ErrNotSupported, "X722"},
		"X722":       {fakeirdma.Config{Generation: 1}, uverbs.ErrNotSupported, "X722"},
		"the next":   {fakeirdma.Config{Generation: 3}, uverbs.ErrNotSupported, "generation 3"},
		"iWARP":      {fakeirdma.Config{Generation: 2, IWARP: true}, uverbs.ErrNotSupported, "iWARP mode"},
		"SGEs":       {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwWqFrags = 14 }), uverbs.ErrABI, "14 SGEs"},
		"no SGEs":    {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwReadSges = 0 }), uverbs.ErrABI, "0 SGEs"},
		"READs":      {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwReadSges = 14 }), uverbs.ErrABI, "READ"},
		"inline":     {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwInline = 226 }), uverbs.ErrABI, "inline"},
		"sends":      {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwWqQuanta = 1 << 16 }), uverbs.ErrABI, "send"},
		"no sends":   {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwWqQuanta = 256 }), uverbs.ErrABI, "send"},
		"receives":   {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwRqQuanta = 0 }), uverbs.ErrABI, "receive"},
		"CQs":        {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwCqSize = 1 << 20 }), uverbs.ErrABI, "CQ"},
		"chunk":      {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwSqChunk = 4 }), uverbs.ErrABI, "chunk"},
		"odd chunk":  {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwSqChunk = 12 }), uverbs.ErrABI, "chunk"},
		"long chunk": {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MaxHwSqChunk = 256 }), uverbs.ErrABI, "chunk"},
		"odd queue":  {e810(func(r *uapi.IrdmaAllocUcontextResp) { r.MinHwWqSize = 9 }), uverbs.ErrABI, "smallest"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := uverbs.Open(fakeirdma.New(t, 1, c.cfg).Device(0).Name())
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("Open: %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

// What the device does not have, or not so many of, is refused with what it has.
func TestLimits(t *testing.T) {
	ctx := must(uverbs.Open(fakeirdma.New(t, 1, fakeirdma.E810).Device(0).Name()))(t)
	defer ctx.Close()
	pd := must(ctx.AllocPD())(t)
	cq := must(ctx.CreateCQ(uverbs.CQConfig{Entries: 8}))(t)
	_, err := pd.CreateSRQ(uverbs.SRQConfig{MaxWR: 8, MaxSGE: 1})
	if !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("CreateSRQ: %v", err)
	}
	if _, err = ctx.CreateCQ(uverbs.CQConfig{Entries: 1 << 19}); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("CreateCQ: %v", err)
	}
	for text, change := range map[string]func(*uverbs.QPConfig){
		"MaxSendWR is 5000, and the device supports up to 4063": func(c *uverbs.QPConfig) {
			c.MaxSendWR, c.MaxSendSGE = 5000, 7
		},
		"MaxSendWR is 16256, and the device supports up to 16255": func(c *uverbs.QPConfig) { c.MaxSendWR = 16256 },
		"MaxRecvWR is 32768, and the device supports up to 32767": func(c *uverbs.QPConfig) { c.MaxRecvWR = 32768 },
		"MaxSendSGE is 14": func(c *uverbs.QPConfig) { c.MaxSendSGE = 14 },
		"MaxRecvSGE is 14": func(c *uverbs.QPConfig) { c.MaxRecvSGE = 14 },
		"MaxInline is 102": func(c *uverbs.QPConfig) { c.MaxInline = 102 },
		"type UC":          func(c *uverbs.QPConfig) { c.Type = uverbs.UC },
	} {
		cfg := uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
		change(&cfg)
		if _, err := pd.CreateQP(cfg); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("CreateQP: %v, want %q", err, text)
		}
	}
	cfg := uverbs.QPConfig{Type: uverbs.UD, SendCQ: cq, MaxSendWR: 4063, MaxRecvWR: 4063, MaxRecvSGE: 13}
	must(pd.CreateQP(cfg))(t)
}

// If the reply to a create command cannot be right, the kernel's object is destroyed before its memory is deregistered,
// which the fabric checks.
func TestRefusedReplies(t *testing.T) {
	for text, reply := range map[string]func(any){
		"iWARP mode":                      on(func(r *uapi.IrdmaCreateQpResp) { r.QpCaps = 0 }),
		"QPN":                             on(func(r *uapi.IrdmaCreateQpResp) { r.QpId++ }),
		"queues of 512 and":               on(func(r *uapi.IrdmaCreateQpResp) { r.ActualSqSize *= 2 }),
		"and 16 requests instead":         on(func(r *uapi.IrdmaCreateQpResp) { r.ActualRqSize *= 2 }),
		"first requests are the kernel's": on(func(r *uapi.IrdmaCreateQpResp) { r.Lsmm = 1 }),
		"CQ 16777216":                     on(func(r *uapi.IrdmaCreateCqResp) { r.CqId = 1 << 24 }),
		"20 entries instead of 18":        on(func(r *uapi.IrdmaCreateCqResp) { r.CqSize += 2 }),
		"AH 131072":                       on(func(r *uapi.IrdmaCreateAhResp) { r.AhId = 1 << 17 }),
	} {
		t.Run(text, func(t *testing.T) {
			each(t, func(t *testing.T, cfg fakeirdma.Config) {
				cfg.Reply = reply
				err := create(t, fakeirdma.New(t, 1, cfg).Device(0).Name())
				if !errors.Is(err, uverbs.ErrABI) && !errors.Is(err, uverbs.ErrNotSupported) ||
					!strings.Contains(err.Error(), text) {
					t.Errorf("the creation returns %v, want %q", err, text)
				}
			})
		})
	}
}

// on returns a function that changes replies of a type.
func on[T any](change func(*T)) func(any) {
	return func(resp any) {
		if r, ok := resp.(*T); ok {
			change(r)
		}
	}
}

// create creates objects until there is an error, and closes them.
func create(t *testing.T, device string) error {
	ctx := must(uverbs.Open(device))(t)
	defer ctx.Close()
	pd := must(ctx.AllocPD())(t)
	cq, err := ctx.CreateCQ(uverbs.CQConfig{Entries: 8})
	if err != nil {
		return err
	}
	if _, err = pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1,
		MaxRecvSGE: 1}); err != nil {
		return err
	}
	_, err = pd.CreateAH(uverbs.AHAttr{Port: 1, IsGlobal: true})
	return err
}

// The length of an SGE has 31 bits, and the valid bit is above it. A message is as long as the kernel says.
func TestLongest(t *testing.T) {
	r := providertest.Device(t, fakeirdma.New(t, 1, fakeirdma.E810).Device(0).Name())
	const most = 1<<31 - 1
	for _, sgl := range [][]uverbs.SGE{{{Length: most + 1}}, {{}, {Length: most + 1}}, {{Length: most}, {Length: 1}}} {
		send := uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: sgl}
		if n, err := r.QP.PostSend([]uverbs.SendWR{send}); n != 0 || err != uverbs.ErrRange {
			t.Errorf("PostSend of %+v: %d, %v", sgl, n, err)
		}
		if n, err := r.QP.PostRecv([]uverbs.RecvWR{{SGL: sgl}}); n != 0 || err != uverbs.ErrRange {
			t.Errorf("PostRecv of %+v: %d, %v", sgl, n, err)
		}
	}
	if n, err := r.QP.PostRecv([]uverbs.RecvWR{{SGL: []uverbs.SGE{{Length: most}}}}); n != 1 || err != nil {
		t.Errorf("PostRecv of the longest receive: %d, %v", n, err)
	}
}

// modifier is the QP of a rig.
type modifier interface {
	Modify(uverbs.QPAttr, uverbs.QPMask) error
}

// outcome polls, and checks the WRIDs and the statuses. The device has done its work when a call returns.
func outcome(t *testing.T, r *providertest.Rig, want ...uverbs.WC) {
	t.Helper()
	wcs := make([]uverbs.WC, len(want)+1)
	n, err := r.CQ.Poll(wcs)
	if n != len(want) || err != nil {
		t.Fatalf("Poll: %+v, %v; want %+v", wcs[:n], err, want)
	}
	for i, wc := range wcs[:n] {
		if wc.WRID != want[i].WRID || wc.Status != want[i].Status {
			t.Errorf("completion %+v, want %+v", wc, want[i])
		}
	}
}

func flushed(id uint64) uverbs.WC { return uverbs.WC{WRID: id, Status: uverbs.WCWRFlushErr} }

// In ERR, what is posted is flushed: what is in the queues, and later what is posted to empty ones.
func TestErr(t *testing.T) {
	each(t, func(t *testing.T, cfg fakeirdma.Config) {
		r := providertest.Device(t, fakeirdma.New(t, 1, cfg).Device(0).Name())
		recv := func(id uint64) uverbs.RecvWR { return uverbs.RecvWR{WRID: id} }
		if _, err := r.QP.PostRecv([]uverbs.RecvWR{recv(1), recv(2)}); err != nil {
			t.Fatal(err)
		}
		if err := r.QP.(modifier).Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState); err != nil {
			t.Fatal(err)
		}
		outcome(t, r, flushed(1), flushed(2))
		for i := range uint64(3) {
			sends := []uverbs.SendWR{{WRID: 10 + i, Opcode: uverbs.OpSend}, {WRID: 20 + i, Opcode: uverbs.OpSend}}
			if _, err := r.QP.PostSend(sends); err != nil {
				t.Fatal(err)
			}
			outcome(t, r, flushed(10+i), flushed(20+i))
			if _, err := r.QP.PostRecv([]uverbs.RecvWR{recv(30 + i), recv(40 + i)}); err != nil {
				t.Fatal(err)
			}
			outcome(t, r, flushed(30+i), flushed(40+i))
		}
	})
}

// RESET drops what is posted. The only way from there is to ERR, in which the device goes on where it is in its rings.
func TestReset(t *testing.T) {
	each(t, func(t *testing.T, cfg fakeirdma.Config) {
		r := providertest.Device(t, fakeirdma.New(t, 1, cfg).Device(0).Name())
		write := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: r.Addr, RKey: r.RKey}
		if _, err := r.QP.PostSend([]uverbs.SendWR{write}); err != nil {
			t.Fatal(err)
		}
		outcome(t, r, uverbs.WC{WRID: 1})
		if _, err := r.QP.PostSend([]uverbs.SendWR{write}); err != nil {
			t.Fatal(err)
		}
		recv := func(id uint64) uverbs.RecvWR { return uverbs.RecvWR{WRID: id} }
		if _, err := r.QP.PostRecv([]uverbs.RecvWR{recv(2), recv(3)}); err != nil {
			t.Fatal(err)
		}
		modify := r.QP.(modifier).Modify
		if err := modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState); err != nil {
			t.Fatal(err)
		}
		outcome(t, r)
		if s, n := r.QP.SendsOutstanding(), r.QP.RecvsOutstanding(); s != 0 || n != 0 {
			t.Errorf("after RESET %d sends and %d receives are outstanding", s, n)
		}
		if err := modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState); err != nil {
			t.Fatal(err)
		}
		for i := range uint64(2 * providertest.MaxRecvWR) {
			if _, err := r.QP.PostRecv([]uverbs.RecvWR{recv(10 + i), recv(20 + i)}); err != nil {
				t.Fatal(err)
			}
			outcome(t, r, flushed(10+i), flushed(20+i))
			if _, err := r.QP.PostSend([]uverbs.SendWR{write, write}); err != nil {
				t.Fatal(err)
			}
			outcome(t, r, flushed(1), flushed(1))
		}
	})
}

// The first request that is flushed has the error of the one that failed. What is posted later is flushed, although
// the program has not moved the QP to ERR.
func TestFailed(t *testing.T) {
	each(t, func(t *testing.T, cfg fakeirdma.Config) {
		r := providertest.Device(t, fakeirdma.New(t, 1, cfg).Device(0).Name())
		write := func(id uint64, key uint32) uverbs.SendWR {
			return uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{{Addr: r.Addr, Length: 8, LKey: r.LKey}},
				RemoteAddr: r.Addr, RKey: key}
		}
		wrs := []uverbs.SendWR{write(1, r.RKey), write(2, r.RKey+1), write(3, r.RKey)}
		wrs[0].Flags = uverbs.Signaled
		if _, err := r.QP.PostSend(wrs); err != nil {
			t.Fatal(err)
		}
		outcome(t, r, uverbs.WC{WRID: 1}, uverbs.WC{WRID: 2, Status: uverbs.WCRemAccessErr}, flushed(3))
		if _, err := r.QP.PostRecv([]uverbs.RecvWR{{WRID: 4}}); err != nil {
			t.Fatal(err)
		}
		outcome(t, r, flushed(4))
		if _, err := r.QP.PostSend([]uverbs.SendWR{write(5, r.RKey)}); err != nil {
			t.Fatal(err)
		}
		outcome(t, r, flushed(5))
	})
}

// A CQ can be resized as often as one likes, unless completions in old rings are not polled.
func TestManyResizes(t *testing.T) {
	r := providertest.Device(t, fakeirdma.New(t, 1, fakeirdma.E810).Device(0).Name())
	const rings = 16 // with entries that have not been polled
	for i := range 4 * rings {
		if err := r.Resize(100 + i); err != nil {
			t.Fatalf("resize %d: %v", i, err)
		}
	}
	write := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: r.Addr, RKey: r.RKey}
	if _, err := r.QP.PostSend([]uverbs.SendWR{write}); err != nil {
		t.Fatal(err)
	}
	var err error
	n := 0
	for ; n < 2*rings && err == nil; n++ {
		err = r.Resize(200 + n)
	}
	if !errors.Is(err, uverbs.ErrBusy) || n < rings {
		t.Fatalf("after %d resizes with a completion in the first ring: %v, want %v", n, err, uverbs.ErrBusy)
	}
	outcome(t, r, uverbs.WC{WRID: 1})
	if err := r.Resize(300); err != nil {
		t.Error(err)
	}
	if _, err := r.QP.PostSend([]uverbs.SendWR{write}); err != nil {
		t.Fatal(err)
	}
	outcome(t, r, uverbs.WC{WRID: 1})
}
