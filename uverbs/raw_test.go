package uverbs

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// raw makes the fake kernel support raw packets.
func (r *rig) raw() {
	r.k.Set(func() { r.k.NetRaw, r.k.Raw = true, true })
}

// A spread is a raw packet QP with RSS that distributes packets over two WQs.
type spread struct {
	pd    *PD
	cq    *CQ
	wqs   []*WQ
	table *RWQIndTable
	qp    *QP
}

func (r *rig) spread(t testing.TB, single bool) *spread {
	t.Helper()
	s := &spread{pd: good(r.c.AllocPD())(t), cq: good(r.c.CreateCQ(CQConfig{Entries: 64, SingleGoroutine: single}))(t)}
	for range 2 {
		s.wqs = append(s.wqs, good(s.pd.CreateWQ(WQConfig{CQ: s.cq, MaxWR: 8, MaxSGE: 2, SingleGoroutine: single}))(t))
	}
	s.table = good(r.c.CreateRWQIndTable(s.wqs[0], s.wqs[1], s.wqs[1], s.wqs[0]))(t)
	s.qp = good(s.pd.CreateQP(QPConfig{Type: RawPacket,
		RSS: &RSSConfig{Table: s.table, Function: RSSToeplitz, Key: make([]byte, 40),
			Fields: RSSSrcIPv4}, SingleGoroutine: single}))(t)
	return s
}

var toHere = FlowEth{Val: EthFilter{DstMAC: [6]byte{2, 0, 0, 0, 0, 1}},
	Mask: EthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}}}

// TestRawPacketQP checks that a raw packet QP needs only a port to go to RTS, and that it cannot be
// closed while it has flows.
func TestRawPacketQP(t *testing.T) {
	r := newRig(t)
	r.raw()
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 16, NoEvents: true}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RawPacket, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 32,
		CreateFlags: QPCVLANStripping}))(t)
	check(t, qp.Ready())
	if s := qp.State(); s != StateRTS {
		t.Errorf("the QP is in %v", s)
	}
	good(qp.PostSend(SendWR{Opcode: OpSend, Inline: []byte("frame"), Flags: Signaled}))(t)
	good(qp.PostRecv(RecvWR{}))(t)
	flow := good(qp.CreateFlow(FlowAttr{Specs: []FlowSpec{toHere}}))(t)
	if err := qp.Close(); !errors.Is(err, ErrBusy) || !strings.Contains(err.Error(), "flow ") {
		t.Errorf("Close under a flow: %v", err)
	}
	check(t, flow.Close())
	check(t, flow.Close())
	good(qp.CreateFlow(FlowAttr{Type: FlowAllDefault}))(t) // closed with the Context
	if err := qp.Connect(Endpoint{}); !errors.Is(err, ErrInvalid) {
		t.Errorf("Connect: %v", err)
	}
	if n := r.k.Count("FLOW.DESTROY"); n != 1 {
		t.Errorf("%d flows destroyed", n)
	}
}

// TestWQ checks that a WQ accepts receives from RDY on, that RESET drops them, and that tables and
// QPs keep the WQ from being closed.
func TestWQ(t *testing.T) {
	for _, single := range []bool{false, true} {
		r := newRig(t)
		r.raw()
		s := r.spread(t, single)
		q, f := s.wqs[0], r.p.wqs[0]
		if _, err := q.PostRecv(RecvWR{}); !errors.Is(err, ErrState) {
			t.Errorf("PostRecv in RESET: %v", err)
		}
		check(t, q.Ready())
		if n, err := q.PostRecv(make([]RecvWR, 9)...); n != 8 || err != ErrQueueFull {
			t.Errorf("PostRecv of 9 to a queue of 8: %d, %v", n, err)
		}
		if n := q.Outstanding(); n != 8 || q.MaxWR() != 8 || q.MaxSGE() != 2 || q.CQ() != s.cq || q.WQN() == 0 ||
			q.Context() != r.c {
			t.Errorf("%d outstanding of %d", n, q.MaxWR())
		}
		check(t, q.Modify(WQAttr{State: WQStateErr, CurState: WQStateRdy}, WQMaskState|WQMaskCurState))
		check(t, q.Modify(WQAttr{State: WQStateReset}, WQMaskState))
		if n := q.Outstanding(); n != 0 || f.resets != 1 || len(r.p.cqs[0].purgedWQs) != 1 || q.State() != WQStateReset {
			t.Errorf("after RESET: %d outstanding, %d resets, %v", n, f.resets, q.State())
		}
		check(t, q.Modify(WQAttr{Flags: WQCVLANStripping, FlagsMask: WQCVLANStripping}, WQMaskFlags))
		for _, c := range []interface{ Close() error }{q, s.table} {
			if err := c.Close(); !errors.Is(err, ErrBusy) {
				t.Errorf("Close of %v in use: %v", c, err)
			}
		}
		if s.table.Size() != 4 || s.table.Context() != r.c {
			t.Errorf("the table has %d places", s.table.Size())
		}
		check(t, s.qp.Close())
		check(t, s.table.Close())
		check(t, q.Close())
		check(t, q.Close())
		if n := q.Outstanding(); n != 0 {
			t.Errorf("%d outstanding after Close", n)
		}
	}
}

// TestRSSQP checks that a QP with RSS has no queues and no states.
func TestRSSQP(t *testing.T) {
	r := newRig(t)
	r.raw()
	s := r.spread(t, false)
	if _, err := s.qp.PostSend(SendWR{}); err != ErrNoQueue {
		t.Errorf("PostSend: %v", err)
	}
	if _, err := s.qp.PostRecv(RecvWR{}); err != ErrNoQueue {
		t.Errorf("PostRecv: %v", err)
	}
	b := s.qp.StartSend()
	b.Send(1, 0)
	if err := b.Submit(); err != ErrNoQueue {
		t.Errorf("Submit: %v", err)
	}
	if s.qp.RecvsOutstanding()+s.qp.SendsOutstanding() != 0 || s.qp.SendCQ() != nil {
		t.Error("there are queues")
	}
	check(t, good(s.qp.CreateFlow(FlowAttr{Specs: []FlowSpec{toHere}}))(t).Close())
}

// TestWQEvent checks that the event of a WQ names the WQ.
func TestWQEvent(t *testing.T) {
	r := newRig(t)
	r.raw()
	s := r.spread(t, false)
	check(t, r.k.Async(s.wqs[1].id, uint32(EventWQFatal)))
	if e := good(r.c.NextEvent(context.Background()))(t); e.Type != EventWQFatal || e.WQ != s.wqs[1] {
		t.Errorf("the event is %+v", e)
	}
}

// TestRawErrors checks that the error of each refused command explains the cause.
func TestRawErrors(t *testing.T) {
	r := newRig(t)
	b := r.bundle(t, false)
	raw := QPConfig{Type: RawPacket, SendCQ: b.cq, MaxSendWR: 1}
	_, err := b.pd.CreateQP(raw)
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("without CAP_NET_RAW: %v", err)
	}
	r.k.Set(func() { r.k.NetRaw = true })
	if _, err = b.pd.CreateQP(raw); !errors.Is(err, ErrNotSupported) {
		t.Errorf("without raw packets: %v", err)
	}
	if _, err = b.pd.CreateWQ(WQConfig{CQ: b.cq, MaxWR: 1}); !errors.Is(err, ErrNotSupported) {
		t.Errorf("without WQs: %v", err)
	}
	r.raw()
	s := r.spread(t, false)
	r.k.Set(func() { r.k.NetRaw = false })
	if _, err = s.qp.CreateFlow(FlowAttr{}); !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("a flow without CAP_NET_RAW: %v", err)
	}
	r.raw()
	rss := func(change func(*QPConfig)) QPConfig {
		cfg := QPConfig{Type: RawPacket, RSS: &RSSConfig{
			Table: s.table, Function: RSSToeplitz, Key: make([]byte, 40), Fields: RSSSrcIPv4}}
		change(&cfg)
		return cfg
	}
	for text, cfg := range map[string]QPConfig{
		"RSS is for":       rss(func(c *QPConfig) { c.Type = UD }),
		"Table is nil":     rss(func(c *QPConfig) { c.RSS.Table = nil }),
		"has no queues":    rss(func(c *QPConfig) { c.MaxRecvWR = 1 }),
		"has unknown bits": rss(func(c *QPConfig) { c.CreateFlags = 1 }),
	} {
		if _, err := b.pd.CreateQP(cfg); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	// The cause of EINVAL is determined after the kernel has refused the command.
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"QP.CREATE": unix.EINVAL} })
	for text, c := range map[string]RSSConfig{
		"has 3 bytes":       {Function: RSSToeplitz, Key: make([]byte, 3), Fields: RSSSrcIPv4},
		"Fields is 0":       {Function: RSSToeplitz, Key: make([]byte, 40)},
		"IPv4 and of IPv6":  {Function: RSSToeplitz, Key: make([]byte, 40), Fields: RSSSrcIPv4 | RSSDstIPv6},
		"TCP, UDP or IPsec": {Function: RSSToeplitz, Key: make([]byte, 40), Fields: RSSSrcPortTCP | RSSDstPortUDP},
	} {
		c.Table = s.table
		if _, err := b.pd.CreateQP(QPConfig{Type: RawPacket, RSS: &c}); !errors.Is(err, ErrInvalid) ||
			!strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	r.k.Set(func() { r.k.Refuse = nil })
	r.k.Set(func() {
		r.k.Ports[0].LinkLayer, r.k.Refuse = uint8(LinkInfiniBand), map[string]unix.Errno{"QP.CREATE": unix.EINVAL}
	})
	if _, err := b.pd.CreateQP(raw); !errors.Is(err, ErrNotSupported) || !errors.Is(err, unix.EINVAL) ||
		!strings.Contains(err.Error(), "InfiniBand") {
		t.Errorf("on InfiniBand: %v", err)
	}
	r.k.Set(func() { r.k.Ports[0].LinkLayer, r.k.Refuse = uint8(LinkEthernet), nil })
	wq := s.wqs[0]
	for text, err := range map[string]error{
		"the mask is 0x201":    wq.Modify(WQAttr{}, WQMaskState|1<<9),
		"in state RESET":       wq.Modify(WQAttr{CurState: WQStateRdy}, WQMaskCurState),
		"does not go to state": wq.Modify(WQAttr{State: 7}, WQMaskState),
		"power of two":         second(r.c.CreateRWQIndTable(wq, wq, wq)),
		"WQ 1 is nil":          second(r.c.CreateRWQIndTable(wq, nil)),
		"is 2000, the device":  second(b.pd.CreateWQ(WQConfig{CQ: b.cq, MaxWR: 2000})),
		"to QPs of type RawPacket or UD": second(func() (any, error) {
			return b.qp.CreateFlow(FlowAttr{})
		}()),
		"Specs[1] is nil": second(s.qp.CreateFlow(FlowAttr{Specs: []FlowSpec{toHere, nil}})),
		"at most 10":      second(s.qp.CreateFlow(FlowAttr{Specs: slices.Repeat([]FlowSpec{toHere}, 11)})),
	} {
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestRawHalfMade checks that a create call that fails half way leaves no object in the kernel.
func TestRawHalfMade(t *testing.T) {
	r := newRig(t)
	r.raw()
	s := r.spread(t, false)
	before := r.k.Live()
	r.p.mapError = errors.New("no room for the ring")
	if _, err := s.pd.CreateWQ(WQConfig{CQ: s.cq, MaxWR: 1}); err == nil {
		t.Error("a WQ without ring")
	}
	r.p.mapError = nil
	if after := r.k.Live(); !slices.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// TestWQAllocs checks that posting to a WQ does not allocate.
func TestWQAllocs(t *testing.T) {
	r := newRig(t)
	r.raw()
	s := r.spread(t, false)
	check(t, s.wqs[0].Ready())
	mr := good(s.pd.Alloc(64, LocalWrite))(t)
	f := r.p.wqs[0]
	f.posted = make([]uint64, 0, 8)
	if n := testing.AllocsPerRun(50, func() {
		f.posted = f.posted[:0]
		for i := range 4 {
			if _, err := s.wqs[0].PostRecv(RecvWR{WRID: uint64(i), SGL: []SGE{mr.SGE(0, 64)}}); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// rawCommands issues the commands of raw packets, with every kind of flow specification.
func rawCommands(t *testing.T, r *rig, pd *PD, cq *CQ) {
	t.Helper()
	r.raw()
	qp := good(pd.CreateQP(QPConfig{Type: RawPacket, SendCQ: cq, MaxSendWR: 0x14, MaxRecvWR: 0x25,
		CreateFlags: QPScatterFCS | QPCVLANStripping, SignalAll: true}))(t)
	check(t, qp.Ready())
	good(qp.CreateFlow(FlowAttr{Type: FlowSniffer, Priority: 0x123, Port: 1, Flags: FlowEgress}))(t)
	flow := good(qp.CreateFlow(FlowAttr{Specs: []FlowSpec{
		FlowEth{Val: EthFilter{DstMAC: [6]byte{1, 2, 3, 4, 5, 6}, SrcMAC: [6]byte{7, 8, 9, 10, 11, 12}, EtherType: 0x1314,
			VLANTag: 0x1516},
			Mask: EthFilter{DstMAC: [6]byte{0xf1}, SrcMAC: [6]byte{0xf2}, EtherType: 0xf3f4, VLANTag: 0xf5f6}},
		FlowIPv4{Val: IPv4Filter{Src: [4]byte{1, 2, 3, 4}, Dst: [4]byte{5, 6, 7, 8}, Proto: 9, TOS: 10, TTL: 11, Flags: 12},
			Mask: IPv4Filter{Src: [4]byte{0xf1}, Dst: [4]byte{0xf2}, Proto: 0xf3, TOS: 0xf4, TTL: 0xf5, Flags: 0xf6}},
		FlowUDP{Val: PortFilter{Dst: 0x102, Src: 0x304}, Mask: PortFilter{Dst: 0xf1f2, Src: 0xf3f4}},
		FlowVXLAN{Val: 0x10203, Mask: 0xf1f2f3},
		FlowEth{Inner: true},
		FlowIPv6{Val: IPv6Filter{Src: [16]byte{1}, Dst: [16]byte{2}, FlowLabel: 0x30405, NextHeader: 6, TrafficClass: 7,
			HopLimit: 8},
			Mask: IPv6Filter{Src: [16]byte{0xf1}, Dst: [16]byte{0xf2}, FlowLabel: 0xff3f4, NextHeader: 0xf5, TrafficClass: 0xf6,
				HopLimit: 0xf7}, Inner: true},
		FlowTCP{Val: PortFilter{Dst: 0x506, Src: 0x708}, Mask: PortFilter{Dst: 0xf5f6, Src: 0xf7f8}, Inner: true},
		FlowActionTag{ID: 0x123456},
	}}))(t)
	good(qp.CreateFlow(FlowAttr{Specs: []FlowSpec{
		FlowESP{Val: ESPFilter{SPI: 0x1020304, Seq: 0x5060708}, Mask: ESPFilter{SPI: 0xf1f2f3f4, Seq: 0xf5f6f7f8}},
		FlowGRE{Val: GREFilter{Head: 0x102, Protocol: 0x304, Key: 0x5060708},
			Mask: GREFilter{Head: 0xf1f2, Protocol: 0xf3f4, Key: 0xf5f6f7f8}},
		FlowMPLS{Val: 0x1020304, Mask: 0xf1f2f3f4},
		FlowActionDrop{},
	}}))(t)
	check(t, flow.Close())
	wq := good(pd.CreateWQ(WQConfig{CQ: cq, MaxWR: 0x66, MaxSGE: 5, Flags: WQCVLANStripping | WQScatterFCS}))(t)
	check(t, wq.Ready())
	check(t, wq.Modify(WQAttr{State: WQStateErr, CurState: WQStateRdy, Flags: WQCVLANStripping,
		FlagsMask: WQCVLANStripping | WQScatterFCS},
		WQMaskState|WQMaskCurState|WQMaskFlags))
	other := good(pd.CreateWQ(WQConfig{CQ: cq, MaxWR: 1}))(t)
	table := good(r.c.CreateRWQIndTable(wq, other, other, wq))(t)
	rss := good(pd.CreateQP(QPConfig{Type: RawPacket, RSS: &RSSConfig{Table: table, Fields: RSSSrcIPv4}}))(t)
	check(t, rss.Close())
	check(t, table.Close())
	check(t, other.Close())
	r.k.Set(func() { r.k.NetRaw = false })
}

// failRaw makes the calls of raw packets fail.
func failRaw(t *testing.T, all map[string]failure) {
	r := newRig(t)
	r.raw()
	s := r.spread(t, false)
	add := func(name string, want, err error) { all[name] = failure{Err: err, Want: want} }
	add("PD.CreateWQ", ErrInvalid, second(s.pd.CreateWQ(WQConfig{})))
	add("QP.CreateFlow", ErrInvalid, second(s.qp.CreateFlow(FlowAttr{Port: 9})))
	add("Context.CreateRWQIndTable", ErrInvalid, second(r.c.CreateRWQIndTable()))
	add("RWQIndTable.Close", ErrBusy, s.table.Close())
	add("WQ.Close", ErrBusy, s.wqs[0].Close())
	add("WQ.PostRecv", ErrState, second(s.wqs[0].PostRecv(RecvWR{})))
	add("WQ.Modify", ErrInvalid, s.wqs[0].Modify(WQAttr{State: 7}, WQMaskState))
	flow := good(s.qp.CreateFlow(FlowAttr{}))(t)
	r.k.Set(func() { r.k.Refuse = map[string]unix.Errno{"FLOW.DESTROY": unix.ENOMEM} })
	all["Flow.Close"] = failure{Err: flow.Close(), Want: unix.ENOMEM, Doc: "If the kernel refuses"}
	r.k.Set(func() { r.k.Refuse = nil })
	check(t, r.c.Close())
	add("WQ.Ready", ErrClosed, s.wqs[0].Ready())
}
