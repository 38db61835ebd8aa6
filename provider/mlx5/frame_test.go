package mlx5

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// A wire has raw packet QPs that receive the frames they send: flows direct frames with the
// wire's address to one of them.
type wire struct {
	*desk
	cq *uverbs.CQ
	qp *uverbs.QP
}

// inlineKit is a device with the given inline mode.
func inlineKit(mode uint8) kit {
	k := standard()
	k.resp = func(r *uapi.Mlx5IbAllocUcontextResp) { r.EthMinInline = mode }
	return k
}

func newWire(t *testing.T, k kit, cfg uverbs.QPConfig) *wire {
	t.Helper()
	w := &wire{desk: newDesk(t, k)}
	w.s.Set(func() {
		w.s.NetRaw, w.s.Raw, w.s.Kernel.Device.DeviceCapFlags = true, true, uint32(uverbs.DeviceRawIPCsum)
	})
	w.cq = good(w.c.CreateCQ(uverbs.CQConfig{Entries: 255}))(t)
	cfg.Type, cfg.SendCQ = uverbs.RawPacket, w.cq
	cfg.MaxSendWR, cfg.MaxRecvWR, cfg.MaxSendSGE, cfg.MaxRecvSGE = 8, 8, 3, 2
	w.qp = good(w.pd.CreateQP(cfg))(t)
	check(t, w.qp.Ready())
	return w
}

var softMAC = [6]byte{2, 0, 0, 0, 0, 1}

func toMAC(mac [6]byte) ether.FlowEth {
	return ether.FlowEth{Val: ether.EthFilter{DstMAC: mac},
		Mask: ether.EthFilter{DstMAC: [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}}
}

// udpFrame returns a UDP frame over IPv4 without checksums.
func udpFrame(dst [6]byte, sport uint16, n int) []byte {
	b := append(append([]byte{}, dst[:]...), 2, 0, 0, 0, 0, 9, 8, 0, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(28+n))
	b = append(b, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2)
	b = binary.BigEndian.AppendUint16(b, sport)
	b = append(b, 7, 8)
	b = append(binary.BigEndian.AppendUint16(b, uint16(8+n)), 0, 0)
	for i := range n {
		b = append(b, byte(i*7))
	}
	return b
}

// A framePost posts a frame whose first bytes are inline.
type framePost func(w *wire, id uint64, f uverbs.SendFlags, inline []byte, sgl []uverbs.SGE) error

var framePosts = map[string]framePost{
	"list": func(w *wire, id uint64, f uverbs.SendFlags, inline []byte, sgl []uverbs.SGE) error {
		_, err := w.qp.PostSend(uverbs.SendWR{WRID: id, Opcode: uverbs.OpSend, Flags: f, Inline: inline, SGL: sgl})
		return err
	},
	"batch": func(w *wire, id uint64, f uverbs.SendFlags, inline []byte, sgl []uverbs.SGE) error {
		b := w.qp.StartSend()
		defer b.Abort()
		b.Send(id, f)
		if len(inline) > 0 {
			b.Inline(inline)
		}
		for _, g := range sgl {
			b.SGE(g)
		}
		return b.Submit()
	},
}

// TestFrames checks that frames arrive as they were sent, for all ways to pass the parts of a frame, at every place of
// the ring.
func TestFrames(t *testing.T) {
	for mode, header := range map[uint8]int{0: 18, 1: 0, 2: 18} {
		for name, post := range framePosts {
			t.Run(fmt.Sprintf("inline mode %d, %s", mode, name), func(t *testing.T) {
				w := newWire(t, inlineKit(mode), uverbs.QPConfig{MaxInline: 100})
				good(ether.CreateFlow(w.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC),
					ether.FlowActionTag{ID: 0x4567}}}))(t)
				id := uint64(0)
				for _, payload := range []int{0, 1, 20, 58, 500, 1400} {
					frame := udpFrame(softMAC, 99, payload)
					for _, inline := range []int{0, 1, 17, 18, 19, 34, 60, 100, len(frame)} {
						if inline > 100 || inline > len(frame) {
							continue
						}
						for pieces := range 3 {
							id++
							w.sendFrame(t, post, id, frame, inline, pieces+1, header)
						}
					}
				}
			})
		}
	}
}

// sendFrame sends a frame with its first bytes inline and the rest in some SGEs, and checks what
// arrives.
func (w *wire) sendFrame(t *testing.T, post framePost, id uint64, frame []byte, inline, pieces, header int) {
	t.Helper()
	const at, to = 0, 4096
	copy(w.mr.Bytes()[at:], frame)
	var sgl []uverbs.SGE
	for off, rest := inline, len(frame)-inline; rest > 0; {
		n := max(rest/pieces, 1)
		if len(sgl) == pieces-1 {
			n = rest
		}
		sgl = append(sgl, w.mr.SGE(at+off, n))
		off, rest = off+n, rest-n
	}
	refused := inline > 0 && inline < header
	if !refused {
		clear(w.mr.Bytes()[to:][:2048])
		_, err := w.qp.PostRecv(uverbs.RecvWR{WRID: id | 1<<32, SGL: []uverbs.SGE{w.mr.SGE(to, 10), w.mr.SGE(to+10, 2000)}})
		check(t, err)
	}
	err := post(w, id, uverbs.Signaled, frame[:inline], sgl)
	if refused {
		if err != uverbs.ErrFrameHeader {
			t.Fatalf("%d inline bytes: %v", inline, err)
		}
		return
	}
	check(t, err)
	got := [2]uverbs.WC{one(t, w.cq), one(t, w.cq)}
	if got[0].WRID != id || got[0].Opcode != uverbs.WCSend || got[0].Err() != nil || got[0].QPNum != w.qp.QPN() {
		t.Fatalf("sent: %+v", got[0])
	}
	r := got[1]
	if r.WRID != id|1<<32 || r.Opcode != uverbs.WCRecv || r.Err() != nil || int(r.ByteLen) != len(frame) ||
		r.QPNum != w.qp.QPN() || ether.FlowTag(&r) != 0x4567 {
		t.Fatalf("received: %+v", r)
	}
	if !bytes.Equal(w.mr.Bytes()[to:][:len(frame)], frame) {
		t.Fatalf("%d inline bytes, %d pieces: received\n%x, sent\n%x", inline, pieces, w.mr.Bytes()[to:][:len(frame)], frame)
	}
	if n := w.qp.SendsOutstanding() + w.qp.RecvsOutstanding(); n != 0 {
		t.Fatalf("%d requests are out", n)
	}
}

// TestFrameChecksums checks that the device computes checksums if it can, and reports correct ones.
func TestFrameChecksums(t *testing.T) {
	w := newWire(t, inlineKit(1), uverbs.QPConfig{})
	good(ether.CreateFlow(w.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC)}}))(t)
	frame := udpFrame(softMAC, 5, 64)
	frame[40], frame[41] = 1, 1 // a wrong checksum, not an omitted one
	for _, flags := range []uverbs.SendFlags{0, ether.IPCsum} {
		copy(w.mr.Bytes(), frame)
		good(w.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{w.mr.SGE(4096, 1500)}}))(t)
		good(w.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: flags, SGL: []uverbs.SGE{w.mr.SGE(0, len(frame))}}))(t)
		r := one(t, w.cq)
		if ok := r.Flags&ether.WCIPCsumOK != 0; ok != (flags != 0) {
			t.Errorf("flags %#x: the checksums are right: %v", flags, ok)
		}
	}
	w = newWire(t, inlineKit(1), uverbs.QPConfig{})
	w.s.Set(func() { w.s.Kernel.Device.DeviceCapFlags = 0 })
	if _, err := w.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: ether.IPCsum,
		SGL: []uverbs.SGE{w.mr.SGE(0, 64)}}); err != uverbs.ErrOpNotSupported {
		t.Errorf("a device that makes no checksums: %v", err)
	}
}

// TestFrameVLAN checks that the completion has the VLAN tag if requested.
func TestFrameVLAN(t *testing.T) {
	for _, flags := range []uverbs.QPCreateFlags{0, ether.QPCVLANStripping} {
		w := newWire(t, inlineKit(1), uverbs.QPConfig{CreateFlags: flags})
		good(ether.CreateFlow(w.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC)}}))(t)
		plain := udpFrame(softMAC, 5, 64)
		frame := append(append(append([]byte{}, plain[:12]...), 0x81, 0, 0x61, 0x23), plain[12:]...)
		copy(w.mr.Bytes(), frame)
		good(w.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{w.mr.SGE(4096, 1500)}}))(t)
		good(w.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{w.mr.SGE(0, len(frame))}}))(t)
		r := one(t, w.cq)
		tag, ok := ether.CVLAN(&r)
		want := frame
		if flags != 0 {
			want = plain
		}
		if ok != (flags != 0) || ok && tag != 0x6123 || !bytes.Equal(w.mr.Bytes()[4096:][:r.ByteLen], want) {
			t.Errorf("flags %#x: the tag is %#x, %v, of %d bytes", uint32(flags), tag, ok, r.ByteLen)
		}
	}
}

// TestFrameStates checks that receives posted before RTR receive no frames before RTR, and that RESET empties the
// queues.
func TestFrameStates(t *testing.T) {
	w := newWire(t, inlineKit(1), uverbs.QPConfig{})
	early := good(w.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: w.cq, MaxSendWR: 1, MaxRecvWR: 4}))(t)
	check(t, early.Init())
	good(ether.CreateFlow(early, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC)}}))(t)
	frame := udpFrame(softMAC, 5, 64)
	copy(w.mr.Bytes(), frame)
	send := func() {
		t.Helper()
		good(w.qp.PostSend(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{w.mr.SGE(0, len(frame))}}))(t)
	}
	good(early.PostRecv(uverbs.RecvWR{WRID: 2, SGL: []uverbs.SGE{w.mr.SGE(4096, 1500)}}))(t)
	send()
	poll(t, w.cq, 1)
	check(t, early.Modify(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState))
	send()
	poll(t, w.cq, 1, 2)
	// RESET removes completions of the QP that have not been polled, but not those of others.
	good(early.PostRecv(uverbs.RecvWR{WRID: 3, SGL: []uverbs.SGE{w.mr.SGE(4096, 1500)}}, uverbs.RecvWR{WRID: 4}))(t)
	send()
	check(t, early.Modify(uverbs.QPAttr{State: uverbs.StateReset}, uverbs.MaskState))
	if n := early.RecvsOutstanding(); n != 0 {
		t.Errorf("%d receives are out after RESET", n)
	}
	poll(t, w.cq, 1)
	check(t, early.Ready())
	good(early.PostRecv(uverbs.RecvWR{WRID: 5}))(t)
	w.s.loop.Run(func() {}) // the rest is flushed, not received
	check(t, early.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	if r := one(t, w.cq); r.WRID != 5 || r.Status != uverbs.WCWRFlushErr || r.QPNum != early.QPN() {
		t.Errorf("flushed: %+v", r)
	}
}

// TestFrameMistakes checks that requests that raw packet QPs do not support are rejected, and that no part of them is
// posted.
func TestFrameMistakes(t *testing.T) {
	w := newWire(t, inlineKit(2), uverbs.QPConfig{MaxInline: 64})
	frame := udpFrame(softMAC, 5, 64)
	gone := good(w.pd.Alloc(64, 0))(t)
	closed := gone.SGE(0, 64)
	check(t, gone.Close())
	for want, wrs := range map[error][]uverbs.SendWR{
		uverbs.ErrQPType: {{Opcode: uverbs.OpSendImm, Inline: frame[:20]}, {Opcode: uverbs.OpWrite, Inline: frame[:20]},
			{Opcode: uverbs.OpBindMW}},
		uverbs.ErrOpcode: {{Opcode: uverbs.OpSend, Flags: 1 << 5, Inline: frame[:20]}},
		uverbs.ErrFrameHeader: {{Opcode: uverbs.OpSend}, {Opcode: uverbs.OpSend, Inline: frame[:17]},
			{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{w.mr.SGE(0, 17)}},
			{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{w.mr.SGE(0, 8), w.mr.SGE(8, 0), w.mr.SGE(8, 9)}},
			{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{closed}}},
		uverbs.ErrInlineTooLong: {{Opcode: uverbs.OpSend, Inline: make([]byte, w.qp.Cap().MaxInline+1)}},
		uverbs.ErrTooManySGEs:   {{Opcode: uverbs.OpSend, Inline: frame[:18], SGL: make([]uverbs.SGE, 4)}},
		uverbs.ErrRange:         {{Opcode: uverbs.OpSend, Inline: frame[:18], SGL: []uverbs.SGE{w.mr.SGE(1<<16, 1)}}},
	} {
		for _, wr := range wrs {
			if n, err := w.qp.PostSend(wr); n != 0 || err != want {
				t.Errorf("%+v: %d, %v, want %v", wr, n, err, want)
			}
		}
	}
	b := w.qp.StartSend()
	b.Send(1, 0)
	b.SGE(w.mr.SGE(0, 8))
	b.Inline(frame[:20])
	if err := b.Submit(); err != uverbs.ErrMalformed {
		t.Errorf("inline data behind an SGE: %v", err)
	}
	if w.s.Stores != 0 || w.qp.SendsOutstanding() != 0 {
		t.Errorf("%d doorbells, %d requests out", w.s.Stores, w.qp.SendsOutstanding())
	}
	k := standard()
	k.cqeVersion = 0
	d := newDesk(t, k)
	d.s.Set(func() { d.s.NetRaw, d.s.Raw = true, true })
	cq := good(d.c.CreateCQ(uverbs.CQConfig{Entries: 1}))(t)
	if _, err := d.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq,
		MaxSendWR: 1}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("a QP, completions of version 0: %v", err)
	}
	if _, err := ether.CreateWQ(d.pd, ether.WQConfig{CQ: cq, MaxWR: 1}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("a WQ, completions of version 0: %v", err)
	}
}

// TestFrameAllocs checks that frames are posted and polled without allocations.
func TestFrameAllocs(t *testing.T) {
	w := newWire(t, inlineKit(2), uverbs.QPConfig{MaxInline: 64})
	good(ether.CreateFlow(w.qp, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC)}}))(t)
	frame := udpFrame(softMAC, 5, 64)
	copy(w.mr.Bytes(), frame)
	w.s.deferred, w.s.stores = true, make([]store, 0, 16) // the device allocates
	var sent, polled float64
	for i := range 20 {
		inline := 18 * (i & 1)
		sent += testing.AllocsPerRun(1, func() {
			for range 2 {
				n, err := w.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{w.mr.SGE(4096, 1500)}})
				if m, err2 := w.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled | ether.IPCsum,
					Inline: frame[:inline], SGL: []uverbs.SGE{w.mr.SGE(inline, len(frame)-inline)}}); n+m != 2 || err != nil ||
					err2 != nil {
					t.Fatal(n, m, err, err2)
				}
			}
		})
		w.s.work()
		var wcs [8]uverbs.WC
		got := 0
		polled += testing.AllocsPerRun(1, func() {
			for range 100 {
				n, err := w.cq.Poll(wcs[:])
				if got += n; err != nil {
					t.Fatal(err)
				}
			}
		})
		if got != 8 {
			t.Fatalf("%d completions", got)
		}
	}
	if sent != 0 || polled != 0 {
		t.Errorf("%v allocations by posts, %v by polls", sent, polled)
	}
}

// TestRawReceivesOfINITAreFlushed checks that ERR flushes receives that were posted in INIT.
func TestRawReceivesOfINITAreFlushed(t *testing.T) {
	w := newWire(t, inlineKit(1), uverbs.QPConfig{})
	q := good(w.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: w.cq, MaxSendWR: 1, MaxRecvWR: 4}))(t)
	check(t, q.Init())
	good(q.PostRecv(uverbs.RecvWR{WRID: 2, SGL: []uverbs.SGE{w.mr.SGE(4096, 1500)}}))(t)
	check(t, q.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	good(q.PostRecv(uverbs.RecvWR{WRID: 3}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check(t, q.Drain(ctx))
	var wcs [3]uverbs.WC
	if n := good(w.cq.Poll(wcs[:]))(t); n != 2 || wcs[0].WRID != 2 || wcs[1].WRID != 3 ||
		wcs[0].Status != uverbs.WCWRFlushErr {
		t.Errorf("%d completions: %v", n, wcs[:n])
	}
}
