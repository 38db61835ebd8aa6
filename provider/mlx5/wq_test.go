package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/uverbs/ether"
)

// A fan has a QP that sends and a QP that spreads received frames over WQs.
type fan struct {
	*wire
	recvs *uverbs.CQ
	wqs   []*ether.WQ
	rss   *uverbs.QP
}

func newFan(t *testing.T, flags ether.WQFlags) *fan {
	t.Helper()
	f := &fan{wire: newWire(t, inlineKit(1), uverbs.QPConfig{})}
	f.recvs = good(f.c.CreateCQ(uverbs.CQConfig{Entries: 255}))(t)
	for range 4 {
		q := good(ether.CreateWQ(f.pd, ether.WQConfig{CQ: f.recvs, MaxWR: 16, MaxSGE: 1, Flags: flags}))(t)
		check(t, q.Ready())
		f.wqs = append(f.wqs, q)
	}
	table := good(ether.CreateRWQIndTable(f.c, f.wqs...))(t)
	key := make([]byte, 40)
	for i := range key {
		key[i] = byte(i*37 + 11)
	}
	f.rss = good(ether.CreateRSSQP(f.pd, ether.RSSConfig{Table: table, Function: ether.RSSToeplitz, Key: key,
		Fields: ether.RSSSrcPortUDP | ether.RSSDstPortUDP | ether.RSSSrcIPv4 | ether.RSSDstIPv4}))(t)
	good(ether.CreateFlow(f.rss, ether.FlowAttr{Specs: []ether.FlowSpec{toMAC(softMAC),
		ether.FlowIPv4{Val: ether.IPv4Filter{Dst: [4]byte{10, 0, 0, 2}},
			Mask: ether.IPv4Filter{Dst: [4]byte{255, 255, 255, 255}}},
		ether.FlowUDP{Val: ether.PortFilter{Dst: 0x708}, Mask: ether.PortFilter{Dst: 0xffff}},
		ether.FlowActionTag{ID: 9}}}))(t)
	return f
}

func (f *fan) recv(t *testing.T, n int) {
	t.Helper()
	for i, q := range f.wqs {
		for k := range n {
			good(q.PostRecv(uverbs.RecvWR{WRID: uint64(i*100 + k), SGL: []uverbs.SGE{f.mr.SGE(4096+1500*i, 1500)}}))(t)
		}
	}
}

func (f *fan) send(t *testing.T, sport uint16) {
	t.Helper()
	frame := udpFrame(softMAC, sport, 64)
	copy(f.mr.Bytes(), frame)
	good(f.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{f.mr.SGE(0, len(frame))}}))(t)
	poll(t, f.cq, 0)
}

// TestRSS checks that frames are spread over the WQs by their ports. Frames of one connection go to the same WQ.
func TestRSS(t *testing.T) {
	f := newFan(t, 0)
	f.recv(t, 16)
	chosen := map[uint16]int{}
	taken := make([]int, len(f.wqs))
	for i := range 40 {
		sport := uint16(i%20 + 1)
		f.send(t, sport)
		r := one(t, f.recvs)
		q := int(r.WRID) / 100
		if r.Err() != nil || r.QPNum != f.wqs[q].WQN() || ether.FlowTag(&r) != 9 || int(r.WRID)%100 != taken[q] ||
			r.ByteLen != 106 {
			t.Fatalf("frame %d: %+v", i, r)
		}
		if before, seen := chosen[sport]; seen && before != q {
			t.Errorf("port %d went to WQ %d, then to %d", sport, before, q)
		}
		chosen[sport] = q
		if taken[q]++; f.wqs[q].Outstanding() != 16-taken[q] {
			t.Errorf("WQ %d has %d receives", q, f.wqs[q].Outstanding())
		}
	}
	for q, n := range taken {
		if n == 0 {
			t.Errorf("WQ %d got nothing: %v", q, taken)
		}
	}
}

// TestWQStates checks that a WQ in ERR flushes, that RESET empties it and removes its completions but not those of
// others, and that in RDY it works again.
func TestWQStates(t *testing.T) {
	f := newFan(t, ether.WQCVLANStripping)
	f.recv(t, 2)
	for _, q := range f.wqs[:2] {
		check(t, q.Modify(ether.WQAttr{State: ether.WQStateErr}, ether.WQMaskState))
	}
	check(t, f.wqs[0].Modify(ether.WQAttr{State: ether.WQStateReset}, ether.WQMaskState))
	for k := range 2 {
		if r := one(t, f.recvs); r.WRID != uint64(100+k) || r.Status != uverbs.WCWRFlushErr || r.QPNum != f.wqs[1].WQN() {
			t.Errorf("flushed: %+v", r)
		}
	}
	poll(t, f.recvs)
	check(t, f.wqs[0].Ready())
	f.recv(t, 2)
	if n := f.wqs[0].Outstanding(); n != 2 {
		t.Errorf("%d receives after RESET and RDY", n)
	}
	// Wrap around the end of the ring.
	if n, err := f.wqs[0].PostRecv(make([]uverbs.RecvWR, 20)...); n != f.wqs[0].MaxWR()-2 || err != uverbs.ErrQueueFull {
		t.Errorf("a queue of %d with 2 receives took %d more: %v", f.wqs[0].MaxWR(), n, err)
	}
	if _, err := f.wqs[2].PostRecv(uverbs.RecvWR{SGL: make([]uverbs.SGE,
		f.wqs[2].MaxSGE()+1)}); err != uverbs.ErrTooManySGEs {
		t.Errorf("too many SGEs: %v", err)
	}
}

// TestPurgeWQ checks that the completions of a closed WQ are removed from its CQ.
func TestPurgeWQ(t *testing.T) {
	w := newWire(t, inlineKit(1), uverbs.QPConfig{})
	q := good(ether.CreateWQ(w.pd, ether.WQConfig{CQ: w.cq, MaxWR: 4}))(t)
	check(t, q.Ready())
	good(q.PostRecv(uverbs.RecvWR{}, uverbs.RecvWR{}))(t)
	good(w.qp.PostRecv(uverbs.RecvWR{WRID: 7}))(t)
	check(t, q.Modify(ether.WQAttr{State: ether.WQStateErr}, ether.WQMaskState))
	check(t, w.qp.Modify(uverbs.QPAttr{State: uverbs.StateErr}, uverbs.MaskState))
	check(t, q.Close())
	if r := one(t, w.cq); r.WRID != 7 || r.QPNum != w.qp.QPN() {
		t.Errorf("left is %+v", r)
	}
	poll(t, w.cq)
}
