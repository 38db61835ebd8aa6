package uverbs

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
)

// TestCommandBytes checks the bytes of every command that the verbs issue. The fake kernel
// checks them against the specifications.
func TestCommandBytes(t *testing.T) {
	r := bareRig()
	var out strings.Builder
	seen := map[string]bool{}
	var dumps []string
	r.k.Recorder = func(name, dump string) {
		seen[name] = true
		dumps = append(dumps, dump)
	}
	var err error
	r.c, err = r.open(t)
	check(t, err)
	pd := good(r.c.AllocPD())(t)
	mr := good(pd.Alloc(4096, LocalWrite|RemoteRead))(t)
	cq := good(r.c.CreateCQ(CQConfig{Entries: 100, Vector: 1}))(t)
	other := good(r.c.CreateCQ(CQConfig{Entries: 7, NoEvents: true}))(t)
	qp := good(pd.CreateQP(QPConfig{Type: RC, SendCQ: cq, RecvCQ: other, MaxSendWR: 0x11, MaxRecvWR: 0x22, MaxSendSGE: 3,
		MaxRecvSGE: 4, MaxInline: 0x55, SignalAll: true, Access: RemoteRead | RemoteWrite}))(t)
	qp.psn = 0x123456
	check(t, qp.Connect(Endpoint{QPN: 0xabcdef, PSN: 0x654321, LID: 0x1111, GID: GID{0: 0x20, 15: 0x99}, MTU: MTU2048,
		RdAtomic: 9}))
	check(t, qp.Modify(QPAttr{MinRNRTimer: 3, Access: RemoteWrite}, MaskMinRNRTimer|MaskAccess))
	good(qp.Query(MaskState | MaskCap))(t)
	check(t, cq.Resize(200))
	datagramCommands(t, pd, cq)
	optionalCommands(t, r, cq, qp)
	b := good(pd.Alloc(8192, 0))(t).Bytes()
	memoryCommands(t, r, b)
	dm := good(r.c.AllocDM(DMConfig{Size: 0x111}))(t)
	check(t, good(pd.RegDM(dm, 0x11, 0x77, LocalWrite|RemoteRead))(t).Close())
	check(t, dm.Close())
	for _, typ := range []MWType{MWType1, MWType2} {
		check(t, good(pd.AllocMW(typ))(t).Close())
	}
	r.k.Set(func() { r.k.NetRaw, r.k.Raw = true, true })
	raw := good(pd.CreateQP(QPConfig{Type: RawPacket, SendCQ: cq, MaxSendWR: 0x14, MaxRecvWR: 0x25,
		CreateFlags: driver.QPScatterFCS | driver.QPCVLANStripping, SignalAll: true}))(t)
	check(t, raw.Ready())
	r.k.Set(func() { r.k.NetRaw = false })
	uc := good(pd.CreateQP(QPConfig{Type: UC, SendCQ: cq, MaxSendWR: 0x13, MaxRecvWR: 0x24, Access: RemoteWrite}))(t)
	uc.psn = 0x123456
	xrcCommands(t, r, pd, cq)
	shared := r.imported(t)
	good(good(shared.ImportPD(pd.Handle()))(t).ImportMR(mr.Handle()))(t)
	check(t, shared.Close())
	if r.c.removed() {
		t.Error("the device counts as removed")
	}
	check(t, uc.Connect(Endpoint{QPN: 0xabcdef, PSN: 0x654321, LID: 0x1111, GID: GID{0: 0x20, 15: 0x99}, MTU: MTU2048,
		RdAtomic: 9}))
	check(t, r.c.Close())
	r.k.Close(t)

	addr := func(a uint64) string { return hex.EncodeToString(binary.LittleEndian.AppendUint64(nil, a)) }
	hide := strings.NewReplacer(addr(mr.Addr()), "<address ... >", addr(addressOf(b)), "<another .. >")
	for _, d := range dumps {
		out.WriteString(hide.Replace(d))
	}
	ioctltest.Golden(t, "commands", out.String())

	// Only providers and package ether issue these.
	elsewhere := map[string]bool{"POLL_CQ": true, "POST_SEND": true, "REQ_NOTIFY_CQ": true, "UAR.ALLOC": true,
		"UAR.DESTROY": true, "PD.QUERY": true, "DM.ALLOC": true, "DM.QUERY": true,
		"DM.MAP_OP_ADDR": true, "CREATE_FLOW_EX": true, "FLOW.DESTROY": true, "WQ.CREATE": true, "MODIFY_WQ_EX": true,
		"WQ.DESTROY": true, "CREATE_RWQ_IND_TBL_EX": true, "RWQ_IND_TBL.DESTROY": true}
	for _, e := range ioctltest.Names() {
		if !seen[e] && !elsewhere[e] {
			t.Errorf("%s is not in the golden file", e)
		}
	}
}

func xrcCommands(t *testing.T, r *rig, pd *PD, cq *CQ) {
	t.Helper()
	x := good(r.c.OpenXRCD(nil, XRCDCreate|XRCDExclusive))(t)
	good(pd.CreateSRQ(SRQConfig{MaxWR: 0x67, MaxSGE: 5, Limit: 0x34, XRCD: x, CQ: cq}))(t)
	remote := Endpoint{QPN: 0xabcdef, PSN: 0x654321, LID: 0x1111, GID: GID{0: 0x20, 15: 0x99}, MTU: MTU2048, RdAtomic: 9}
	initiator := good(pd.CreateQP(QPConfig{Type: XRCSend, SendCQ: cq, MaxSendWR: 0x14, MaxSendSGE: 3, MaxInline: 0x56}))(t)
	target := good(x.CreateQP(QPConfig{Access: RemoteRead}))(t)
	for _, q := range []*QP{initiator, target} {
		q.psn = 0x123456
		check(t, q.Connect(remote))
	}
	good(x.OpenQP(target.QPN()))(t)
}

func optionalCommands(t *testing.T, r *rig, cq *CQ, qp *QP) {
	t.Helper()
	r.k.Set(func() {
		r.k.Speed, r.k.RateMax, r.k.DMABuf = 1, 0x11111, 7
		r.k.Extended.CqModerationCaps.MaxCqModerationCount = 0x1111
		r.k.Extended.CqModerationCaps.MaxCqModerationPeriod = 0x2222
	})
	good(r.c.QueryGID(1, 2))(t)
	good(r.c.QueryPortSpeed(1))(t)
	check(t, cq.Moderate(0x1111, 0x2222*time.Microsecond))
	check(t, qp.Modify(QPAttr{State: StateRTS, MinRNRTimer: 4, RateLimit: 0x11111},
		MaskState|MaskMinRNRTimer|MaskRateLimit))
}

func memoryCommands(t *testing.T, r *rig, b []byte) {
	t.Helper()
	r.pageable()
	pd, other := good(r.c.AllocPD())(t), good(r.c.AllocPD())(t)
	m := good(pd.RegMRIOVA(b, 0x12345000, LocalWrite|RemoteWrite|OnDemand|HugeTLB|RelaxedOrdering))(t)
	good(pd.RegImplicit(OnDemand))(t)
	good(pd.RegDMABuf(7, 0x123, 0x456, 0x789123, LocalWrite|RemoteRead))(t)
	check(t, pd.AdviseMR(AdvicePrefetchWrite, AdviseFlush, MRRange{m, 0x11, 0x22}, MRRange{m, 0x33, 0x44}))
	check(t, m.Rereg(reregAll, other, b[:0x1111], RemoteRead))
}

func datagramCommands(t *testing.T, pd *PD, cq *CQ) {
	t.Helper()
	srq := good(pd.CreateSRQ(SRQConfig{MaxWR: 0x66, MaxSGE: 5, Limit: 0x33}))(t)
	ud := good(pd.CreateQP(QPConfig{Type: UD, SendCQ: cq, SRQ: srq, MaxSendWR: 0x12, MaxRecvWR: 0x23,
		QKey: 0x11223344}))(t)
	ud.psn = 0x123456
	check(t, ud.Ready())
	group := GID{0: 0xff, 1: 0x0e, 15: 0x77}
	check(t, ud.AttachMcast(group, 0xc001))
	check(t, ud.DetachMcast(group, 0xc001))
	ah := good(pd.CreateAH(AHAttr{IsGlobal: true, DGID: GID{0: 0x20, 15: 0x99}, FlowLabel: 0x12345, SGIDIndex: 2,
		HopLimit: 0x41, TrafficClass: 0x55, DLID: 0x1111, SL: 7, SrcPathBits: 3, StaticRate: 6, Port: 1}))(t)
	check(t, ah.Close())
	check(t, srq.Modify(SRQAttr{MaxWR: 0x77, Limit: 0x44}, SRQMaskMaxWR|SRQMaskLimit))
	if a := good(srq.Query())(t); a != (SRQAttr{MaxWR: 0x77, MaxSGE: 5, Limit: 0x44}) {
		t.Errorf("the SRQ is %+v", a)
	}
}

// TestQPAttrRoundTrip checks that every field of QPAttr is encoded in the command, and decoded
// again.
func TestQPAttrRoundTrip(t *testing.T) {
	a := QPAttr{State: 1, CurState: 2, PathMTU: 3, PathMigState: 1, QKey: 5, RQPSN: 6, SQPSN: 7, DestQPN: 8, Access: 9,
		PKeyIndex: 10, AltPKeyIndex: 11, MaxRdAtomic: 12, MaxDestRdAtomic: 13, MinRNRTimer: 14, Port: 15, Timeout: 16,
		RetryCount: 17, RNRRetryCount: 18, AltPort: 19, AltTimeout: 20,
		AV: AHAttr{IsGlobal: true, DGID: GID{1, 2}, FlowLabel: 21, SGIDIndex: 22, HopLimit: 23, TrafficClass: 24, DLID: 25,
			SL: 26, SrcPathBits: 27, StaticRate: 28, Port: 29},
		AltAV: AHAttr{DGID: GID{3}, DLID: 30, Port: 31}}
	got := roundTrip(&a)
	if got != a {
		t.Errorf("%+v\ncomes back as\n%+v", a, got)
	}
}

// roundTrip encodes a for MODIFY_QP and decodes it from QUERY_QP. The two begin with the same
// two addresses; the rest differs.
func roundTrip(a *QPAttr) QPAttr {
	var req uapi.IbUverbsModifyQp
	a.encode(&req)
	resp := uapi.IbUverbsQueryQpResp{Dest: req.Dest, AltDest: req.AltDest, Qkey: req.Qkey, RqPsn: req.RqPsn,
		SqPsn: req.SqPsn, DestQpNum: req.DestQpNum, QpAccessFlags: req.QpAccessFlags, PkeyIndex: req.PkeyIndex,
		AltPkeyIndex: req.AltPkeyIndex, QpState: req.QpState, CurQpState: req.CurQpState, PathMtu: req.PathMtu,
		PathMigState: req.PathMigState, MaxRdAtomic: req.MaxRdAtomic, MaxDestRdAtomic: req.MaxDestRdAtomic,
		MinRnrTimer: req.MinRnrTimer, PortNum: req.PortNum, Timeout: req.Timeout, RetryCnt: req.RetryCnt,
		RnrRetry: req.RnrRetry, AltPortNum: req.AltPortNum, AltTimeout: req.AltTimeout}
	var back QPAttr
	back.decode(&resp)
	return back
}
