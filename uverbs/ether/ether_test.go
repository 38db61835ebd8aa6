package ether

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/failtest"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// A spread is a raw packet QP with RSS that distributes packets over two WQs.
type spread struct {
	pd    *uverbs.PD
	cq    *uverbs.CQ
	wqs   []*WQ
	table *RWQIndTable
	qp    *uverbs.QP
}

func (r *rig) spread(t testing.TB, single bool) *spread {
	t.Helper()
	s := &spread{pd: good(r.c.AllocPD())(t),
		cq: good(r.c.CreateCQ(uverbs.CQConfig{Entries: 64, SingleGoroutine: single}))(t)}
	for range 2 {
		s.wqs = append(s.wqs, good(CreateWQ(s.pd, WQConfig{CQ: s.cq, MaxWR: 8, MaxSGE: 2, SingleGoroutine: single}))(t))
	}
	s.table = good(CreateRWQIndTable(r.c, s.wqs[0], s.wqs[1], s.wqs[1], s.wqs[0]))(t)
	s.qp = good(CreateRSSQP(s.pd, RSSConfig{Table: s.table, Function: RSSToeplitz, Key: make([]byte, 40),
		Fields: RSSSrcIPv4}))(t)
	return s
}

var toHere = FlowEth{Val: EthFilter{DstMAC: [6]byte{2, 0, 0, 0, 0, 1}},
	Mask: EthFilter{DstMAC: [6]byte{255, 255, 255, 255, 255, 255}}}

// TestRawPacketQP checks that a raw packet QP needs only a port to go to RTS, and that it cannot be
// closed while it has flows.
func TestRawPacketQP(t *testing.T) {
	r := newRig(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(uverbs.CQConfig{Entries: 16, NoEvents: true}))(t)
	qp := good(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 4, MaxRecvWR: 4, MaxInline: 32,
		CreateFlags: QPCVLANStripping}))(t)
	check(t, qp.Ready())
	if s := qp.State(); s != uverbs.StateRTS {
		t.Errorf("the QP is in %v", s)
	}
	good(qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Inline: []byte("frame"), Flags: uverbs.Signaled}))(t)
	good(qp.PostRecv(uverbs.RecvWR{}))(t)
	flow := good(CreateFlow(qp, FlowAttr{Specs: []FlowSpec{toHere}}))(t)
	if err := qp.Close(); !errors.Is(err, uverbs.ErrBusy) || !strings.Contains(err.Error(), "flow ") {
		t.Errorf("Close under a flow: %v", err)
	}
	check(t, flow.Close())
	check(t, flow.Close())
	good(CreateFlow(qp, FlowAttr{Type: FlowAllDefault}))(t) // closed with the Context
	if err := qp.Connect(uverbs.Endpoint{}); !errors.Is(err, uverbs.ErrInvalid) {
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
		s := r.spread(t, single)
		q, f := s.wqs[0], r.p.wqs[0]
		if _, err := q.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrState) {
			t.Errorf("PostRecv in RESET: %v", err)
		}
		check(t, q.Ready())
		if n, err := q.PostRecv(make([]uverbs.RecvWR, 9)...); n != 8 || err != uverbs.ErrQueueFull {
			t.Errorf("PostRecv of 9 to a queue of 8: %d, %v", n, err)
		}
		if n := q.Outstanding(); n != 8 || q.MaxWR() != 8 || q.MaxSGE() != 2 || q.CQ() != s.cq || q.WQN() == 0 ||
			q.Context() != r.c {
			t.Errorf("%d outstanding of %d", n, q.MaxWR())
		}
		check(t, q.Modify(WQAttr{State: WQStateErr, CurState: WQStateRdy}, WQMaskState|WQMaskCurState))
		check(t, q.Modify(WQAttr{State: WQStateReset}, WQMaskState))
		if n := q.Outstanding(); n != 0 || f.resets != 1 || len(r.p.cqs[0].purged) != 1 || q.State() != WQStateReset {
			t.Errorf("after RESET: %d outstanding, %d resets, %v", n, f.resets, q.State())
		}
		check(t, q.Modify(WQAttr{Flags: WQCVLANStripping, FlagsMask: WQCVLANStripping}, WQMaskFlags))
		for _, c := range []interface{ Close() error }{q, s.table} {
			if err := c.Close(); !errors.Is(err, uverbs.ErrBusy) {
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
	s := r.spread(t, false)
	if _, err := s.qp.PostSend(uverbs.SendWR{}); err != uverbs.ErrNoQueue {
		t.Errorf("PostSend: %v", err)
	}
	if _, err := s.qp.PostRecv(uverbs.RecvWR{}); err != uverbs.ErrNoQueue {
		t.Errorf("PostRecv: %v", err)
	}
	b := s.qp.StartSend()
	b.Send(1, 0)
	if err := b.Submit(); err != uverbs.ErrNoQueue {
		t.Errorf("Submit: %v", err)
	}
	if s.qp.RecvsOutstanding()+s.qp.SendsOutstanding() != 0 || s.qp.SendCQ() != nil {
		t.Error("there are queues")
	}
	check(t, good(CreateFlow(s.qp, FlowAttr{Specs: []FlowSpec{toHere}}))(t).Close())
}

// TestWQEvent checks that the event of a WQ names the WQ.
func TestWQEvent(t *testing.T) {
	r := newRig(t)
	s := r.spread(t, false)
	check(t, r.k.Async(r.k.UserHandle(driver.HandleOf(s.wqs[1].life)), uint32(uverbs.EventWQFatal)))
	e := good(r.c.NextEvent(context.Background()))(t)
	if e.Type != uverbs.EventWQFatal || e.Object != s.wqs[1] {
		t.Errorf("the event is %+v", e)
	}
}

// TestErrors checks that the error of each refused command explains the cause.
func TestErrors(t *testing.T) {
	r := newRig(t)
	s := r.spread(t, false)
	r.k.Set(func() { r.k.NetRaw = false })
	_, err := CreateFlow(s.qp, FlowAttr{})
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_NET_RAW") {
		t.Errorf("a flow without CAP_NET_RAW: %v", err)
	}
	r.k.Set(func() { r.k.NetRaw = true })
	r.refuse(map[string]unix.Errno{"QP.CREATE": unix.EINVAL})
	for text, c := range map[string]RSSConfig{
		"has 3 bytes":       {Function: RSSToeplitz, Key: make([]byte, 3), Fields: RSSSrcIPv4},
		"Fields is 0":       {Function: RSSToeplitz, Key: make([]byte, 40)},
		"IPv4 and of IPv6":  {Function: RSSToeplitz, Key: make([]byte, 40), Fields: RSSSrcIPv4 | RSSDstIPv6},
		"TCP, UDP or IPsec": {Function: RSSToeplitz, Key: make([]byte, 40), Fields: RSSSrcPortTCP | RSSDstPortUDP},
	} {
		c.Table = s.table
		if _, err := CreateRSSQP(s.pd, c); !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
	r.refuse(nil)
	other := newRig(t)
	theirs := good(CreateRWQIndTable(other.c, other.spread(t, false).wqs[0]))(t)
	rc := good(s.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: s.cq, MaxSendWR: 1}))(t)
	wq := s.wqs[0]
	for text, err := range map[string]error{
		"Table is nil":                   second(CreateRSSQP(s.pd, RSSConfig{})),
		"another Context":                second(CreateRSSQP(s.pd, RSSConfig{Table: theirs})),
		"the mask is 0x201":              wq.Modify(WQAttr{}, WQMaskState|1<<9),
		"in state RESET":                 wq.Modify(WQAttr{CurState: WQStateRdy}, WQMaskCurState),
		"does not go to state":           wq.Modify(WQAttr{State: 7}, WQMaskState),
		"power of two":                   second(CreateRWQIndTable(r.c, wq, wq, wq)),
		"WQ 1 is nil":                    second(CreateRWQIndTable(r.c, wq, nil)),
		"is 2000, the device":            second(CreateWQ(s.pd, WQConfig{CQ: s.cq, MaxWR: 2000})),
		"to QPs of type RawPacket or UD": second(CreateFlow(rc, FlowAttr{})),
		"Specs[1] is nil":                second(CreateFlow(s.qp, FlowAttr{Specs: []FlowSpec{toHere, nil}})),
		"at most 10":                     second(CreateFlow(s.qp, FlowAttr{Specs: slices.Repeat([]FlowSpec{toHere}, 11)})),
		"has ports 1 to":                 second(CreateFlow(s.qp, FlowAttr{Port: 9})),
	} {
		if !errors.Is(err, unix.EINVAL) && !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTableRefused checks the cause of a table that the kernel refuses.
func TestTableRefused(t *testing.T) {
	r := newRig(t)
	wqs := r.spread(t, false).wqs
	for _, v := range []struct {
		errno unix.Errno
		most  uint32
		want  string
	}{
		{unix.ENOMEM, 8, "or the device no object left"},
		{unix.ENOMEM, 1, "the number of WQs is 2, the device accepts 1 at most"},
		{unix.EINVAL, 1, "the number of WQs is 2, the device accepts 1 at most"},
	} {
		r.refuse(map[string]unix.Errno{"CREATE_RWQ_IND_TBL_EX": v.errno})
		r.k.Set(func() { r.k.Extended.RssCaps.MaxRwqIndirectionTableSize = v.most })
		_, err := CreateRWQIndTable(r.c, wqs[0], wqs[1])
		if !errors.Is(err, v.errno) || !strings.Contains(err.Error(), v.want) {
			t.Errorf("%v: %v, want …%s", v.errno, err, v.want)
		}
	}
	r.refuse(nil)
}

// TestValues compares the flags with those that uverbs and the providers use, and these with the kernel's and C's.
func TestValues(t *testing.T) {
	for name, v := range map[string][3]uint64{
		"IPCsum":           {uint64(IPCsum), driver.SendIPCsum, 1 << 4},     // IBV_SEND_IP_CSUM
		"WCIPCsumOK":       {uint64(WCIPCsumOK), driver.WCIPCsumOK, 1 << 2}, // IBV_WC_IP_CSUM_OK
		"WCWithCVLAN":      {uint64(WCWithCVLAN), driver.WCWithCVLAN, 1 << 7},
		"QPScatterFCS":     {uint64(QPScatterFCS), driver.QPScatterFCS, uapi.IB_UVERBS_QP_CREATE_SCATTER_FCS},
		"QPCVLANStripping": {uint64(QPCVLANStripping), driver.QPCVLANStripping, uapi.IB_UVERBS_QP_CREATE_CVLAN_STRIPPING},
		"QPPCIWriteEndPadding": {uint64(QPPCIWriteEndPadding), driver.QPPCIWriteEndPadding,
			uapi.IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING},
	} {
		if v[0] != v[1] || v[1] != v[2] {
			t.Errorf("%s is %#x, package driver has %#x, want %#x", name, v[0], v[1], v[2])
		}
	}
}

// TestNotSupported checks the error on a device without work queues.
func TestNotSupported(t *testing.T) {
	r := bareRig()
	r.p.noWQs = true
	r.open(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(uverbs.CQConfig{Entries: 1, NoEvents: true}))(t)
	if _, err := CreateWQ(pd, WQConfig{CQ: cq, MaxWR: 1}); !errors.Is(err, uverbs.ErrNotSupported) {
		t.Errorf("without WQs: %v", err)
	}
	check(t, r.c.Close())
	r.k.Close(t)
}

// TestRSSConfigIsCopied checks that the caller may change the key after CreateRSSQP, and that a QP
// keeps its table open.
func TestRSSConfigIsCopied(t *testing.T) {
	r := newRig(t)
	s := r.spread(t, false)
	cfg := RSSConfig{Table: s.table, Function: RSSToeplitz, Key: make([]byte, 40), Fields: RSSSrcIPv4}
	qp := good(CreateRSSQP(s.pd, cfg))(t)
	cfg.Key[0] = 1
	if got := r.p.keys[len(r.p.keys)-1]; got[0] != 0 {
		t.Error("the QP uses the caller's key")
	}
	check(t, s.qp.Close())
	if err := s.table.Close(); !errors.Is(err, uverbs.ErrBusy) {
		t.Errorf("Close of a table in use: %v", err)
	}
	check(t, qp.Close())
}

// TestHalfMade checks that a create call that fails half way leaves no object in the kernel.
func TestHalfMade(t *testing.T) {
	r := newRig(t)
	s := r.spread(t, false)
	before := r.k.Live()
	r.p.mapError = errors.New("no room for the ring")
	if _, err := CreateWQ(s.pd, WQConfig{CQ: s.cq, MaxWR: 1}); err == nil {
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
	s := r.spread(t, false)
	check(t, s.wqs[0].Ready())
	mr := good(s.pd.Alloc(64, uverbs.LocalWrite))(t)
	f := r.p.wqs[0]
	f.posted = make([]uint64, 0, 8)
	if n := testing.AllocsPerRun(50, func() {
		f.posted = f.posted[:0]
		for i := range 4 {
			if _, err := s.wqs[0].PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{mr.SGE(0, 64)}}); err != nil {
				t.Fatal(err)
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestCommandBytes checks the bytes of the commands of raw packets, with every kind of flow
// specification.
func TestCommandBytes(t *testing.T) {
	r := bareRig()
	r.open(t)
	pd := good(r.c.AllocPD())(t)
	cq := good(r.c.CreateCQ(uverbs.CQConfig{Entries: 100, Vector: 1}))(t)
	var out strings.Builder
	r.k.Recorder = func(_, dump string) { out.WriteString(dump) }
	qp := good(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: cq, MaxSendWR: 0x14, MaxRecvWR: 0x25,
		CreateFlags: QPScatterFCS | QPCVLANStripping, SignalAll: true}))(t)
	check(t, qp.Ready())
	good(CreateFlow(qp, FlowAttr{Type: FlowSniffer, Priority: 0x123, Port: 1, Flags: FlowEgress}))(t)
	flow := good(CreateFlow(qp, FlowAttr{Specs: []FlowSpec{
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
	good(CreateFlow(qp, FlowAttr{Specs: []FlowSpec{
		FlowESP{Val: ESPFilter{SPI: 0x1020304, Seq: 0x5060708}, Mask: ESPFilter{SPI: 0xf1f2f3f4, Seq: 0xf5f6f7f8}},
		FlowGRE{Val: GREFilter{Head: 0x102, Protocol: 0x304, Key: 0x5060708},
			Mask: GREFilter{Head: 0xf1f2, Protocol: 0xf3f4, Key: 0xf5f6f7f8}},
		FlowMPLS{Val: 0x1020304, Mask: 0xf1f2f3f4},
		FlowActionDrop{},
	}}))(t)
	check(t, flow.Close())
	wq := good(CreateWQ(pd, WQConfig{CQ: cq, MaxWR: 0x66, MaxSGE: 5, Flags: WQCVLANStripping | WQScatterFCS}))(t)
	check(t, wq.Ready())
	check(t, wq.Modify(WQAttr{State: WQStateErr, CurState: WQStateRdy, Flags: WQCVLANStripping,
		FlagsMask: WQCVLANStripping | WQScatterFCS},
		WQMaskState|WQMaskCurState|WQMaskFlags))
	other := good(CreateWQ(pd, WQConfig{CQ: cq, MaxWR: 1}))(t)
	table := good(CreateRWQIndTable(r.c, wq, other, other, wq))(t)
	rss := good(CreateRSSQP(pd, RSSConfig{Table: table, Fields: RSSSrcIPv4}))(t)
	check(t, rss.Close())
	check(t, table.Close())
	check(t, other.Close())
	r.k.Recorder = nil
	check(t, r.c.Close())
	r.k.Close(t)
	ioctltest.Golden(t, "commands", out.String())
}

// TestGoneUnderChange makes the device fail while the kernel executes a command of a WQ. When the call
// sets the gate afterwards, it must not open it.
func TestGoneUnderChange(t *testing.T) {
	for _, command := range []string{"WQ.CREATE", "MODIFY_WQ_EX", "WQ.DESTROY"} {
		t.Run(command, func(t *testing.T) {
			r := newRig(t)
			defer r.k.Set(func() { r.k.Before, r.k.Refuse = nil, nil })
			pd := good(r.c.AllocPD())(t)
			cq := good(r.c.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)
			r.k.Set(func() {
				r.k.Refuse = map[string]unix.Errno{"WQ.DESTROY": unix.EPERM}
				r.k.Before = func(m *ioctltest.Msg) {
					if m.Name == command {
						markDeviceGone(r.c)
					}
				}
			})
			q := good(CreateWQ(pd, WQConfig{CQ: cq, MaxWR: 1}))(t)
			check(t, q.Ready())
			if err := q.Close(); !errors.Is(err, unix.EPERM) {
				t.Errorf("Close: %v", err)
			}
			if _, err := q.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrDeviceGone) {
				t.Errorf("PostRecv: %v, want ErrDeviceGone", err)
			}
		})
	}
}

// TestGoneRaces makes the device fail concurrently with posts and changes of a WQ.
func TestGoneRaces(t *testing.T) {
	for range 5 {
		r := newRig(t)
		q := r.spread(t, false).wqs[0]
		var gone atomic.Bool
		var running sync.WaitGroup
		running.Go(func() {
			for left := 20; left > 0; {
				if gone.Load() {
					left--
				}
				if err := errors.Join(q.Modify(WQAttr{State: WQStateReset}, WQMaskState), q.Ready()); err != nil {
					t.Error(err)
					return
				}
			}
		})
		running.Go(func() {
			for {
				_, err := q.PostRecv(uverbs.RecvWR{})
				if errors.Is(err, uverbs.ErrDeviceGone) {
					return
				}
				if err != nil && !errors.Is(err, uverbs.ErrQueueFull) && !errors.Is(err, uverbs.ErrState) {
					t.Errorf("PostRecv: %v", err)
					return
				}
				runtime.Gosched()
			}
		})
		markDeviceGone(r.c)
		gone.Store(true)
		running.Wait()
		if _, err := q.PostRecv(uverbs.RecvWR{}); !errors.Is(err, uverbs.ErrDeviceGone) {
			t.Errorf("PostRecv: %v, want ErrDeviceGone", err)
		}
	}
}

// TestEveryFunctionFails makes every exported function fail that returns an error, and checks that
// its doc comment lists the error.
func TestEveryFunctionFails(t *testing.T) {
	r := newRig(t)
	s := r.spread(t, false)
	all := map[string]failtest.Failure{}
	add := func(name string, want, err error) { all[name] = failtest.Failure{Err: err, Want: want} }
	add("CreateWQ", uverbs.ErrInvalid, second(CreateWQ(s.pd, WQConfig{})))
	add("CreateFlow", uverbs.ErrInvalid, second(CreateFlow(s.qp, FlowAttr{Port: 9})))
	add("CreateRWQIndTable", uverbs.ErrInvalid, second(CreateRWQIndTable(r.c)))
	add("CreateRSSQP", uverbs.ErrInvalid, second(CreateRSSQP(s.pd, RSSConfig{})))
	add("RWQIndTable.Close", uverbs.ErrBusy, s.table.Close())
	add("WQ.Close", uverbs.ErrBusy, s.wqs[0].Close())
	add("WQ.PostRecv", uverbs.ErrState, second(s.wqs[0].PostRecv(uverbs.RecvWR{})))
	add("WQ.Modify", uverbs.ErrInvalid, s.wqs[0].Modify(WQAttr{State: 7}, WQMaskState))
	flow := good(CreateFlow(s.qp, FlowAttr{}))(t)
	r.refuse(map[string]unix.Errno{"FLOW.DESTROY": unix.ENOMEM})
	all["Flow.Close"] = failtest.Failure{Err: flow.Close(), Want: unix.ENOMEM, Doc: "If the kernel refuses"}
	r.refuse(nil)
	check(t, r.c.Close())
	closed := s.wqs[0].Ready()
	all["WQ.Ready"] = failtest.Failure{Err: closed, Want: uverbs.ErrClosed, Doc: "[WQ.Modify]"}
	if want := "uverbs: modify " + s.wqs[0].String() + ": "; !strings.HasPrefix(closed.Error(), want) {
		t.Errorf("the error of a closed WQ is %v, want %s…", closed, want)
	}
	add("QueryDevice", uverbs.ErrClosed, second(QueryDevice(r.c)))
	p := &failtest.Package{
		Failures: all,
		Names: map[error]string{uverbs.ErrClosed: "uverbs.ErrClosed", uverbs.ErrBusy: "uverbs.ErrBusy",
			uverbs.ErrInvalid: "uverbs.ErrInvalid", uverbs.ErrState: "uverbs.ErrState"},
	}
	p.Check(t)
}
