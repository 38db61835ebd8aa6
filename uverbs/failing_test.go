package uverbs

import (
	"context"
	"net"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/failtest"
	"golang.org/x/sys/unix"
)

type failure = failtest.Failure

// TestEveryFunctionFails makes every exported function fail that returns an error, and checks that
// its doc comment lists the error.
func TestEveryFunctionFails(t *testing.T) {
	failures := map[string]failure{}
	for _, add := range []func(*testing.T, map[string]failure){
		failClosed, failInvalid, failBusy, failKernel, failOther} {
		add(t, failures)
	}
	p := &failtest.Package{
		Failures: failures,
		Names: map[error]string{ErrClosed: "[ErrClosed]", ErrBusy: "[ErrBusy]", ErrInvalid: "[ErrInvalid]",
			ErrNotSupported: "[ErrNotSupported]", ErrNoDevice: "[ErrNoDevice]", ErrState: "[ErrState]", ErrNoAH: "[ErrNoAH]",
			ErrNoMW: "[ErrNoMW]"},
		CannotFail: []string{"Endpoint.MarshalText", "GID.MarshalText"},
	}
	p.Check(t)
}

// failClosed calls methods of closed objects.
func failClosed(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1}))(t)
	check(t, r.c.Close())
	ctx := context.Background()
	var sent SendBatch
	for name, err := range map[string]error{
		"Context.AllocPD":           second(r.c.AllocPD()),
		"Context.CreateCompChannel": second(r.c.CreateCompChannel()),
		"Context.QueryDevice":       second(r.c.QueryDevice()),
		"Context.QueryClock":        second(r.c.QueryClock()),
		"Context.WallClock":         second(r.c.WallClock(1)),
		"Context.NextEvent":         second(r.c.NextEvent(ctx)),
		"PD.CreateAH":               second(b.pd.CreateAH(somewhere)),
		"CQ.Poll":                   second(b.cq.Poll(nil)),
		"CQ.Arm":                    b.cq.Arm(false),
		"CQ.Wait":                   b.cq.Wait(ctx),
		"CQ.WaitEvent":              b.cq.WaitEvent(ctx),
		"QP.Init":                   fresh.Init(),
		"QP.Modify":                 b.qp.Modify(QPAttr{}, MaskMinRNRTimer),
		"QP.Drain":                  b.qp.Drain(ctx),
		"QP.Query":                  second(b.qp.Query(MaskState)),
		"QP.Endpoint":               second(fresh.Endpoint()),
		"QP.AHAttr":                 second(fresh.AHAttr(Endpoint{})),
		"QP.DataInOrder":            second(b.qp.DataInOrder(OpSend)),
		"PD.AllocNullMR":            second(b.pd.AllocNullMR()),
		"QP.SetECE":                 b.qp.SetECE(ECE{}),
		"Context.ExportFD":          second(r.c.ExportFD()),
		"Context.AllocTD":           second(r.c.AllocTD()),
		"Context.AllocDM":           second(r.c.AllocDM(DMConfig{Size: 4})),
		"Context.OpenXRCD":          second(r.c.OpenXRCD(nil, 0)),
		"SRQ.PostRecv":              second(b.ud.srq.PostRecv(RecvWR{})),
		"SRQ.Query":                 second(b.ud.srq.Query()),
		"SendBatch.Submit":          sent.Submit(),
	} {
		all[name] = failure{Err: err, Want: ErrClosed}
	}
}

// failInvalid makes calls with invalid arguments.
func failInvalid(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	b.xrc = r.crossing(t, b, false)
	foreign := good(newRig(t).c.AllocTD())(t)
	group := GID{0: 0xff, 15: 1}
	ours, _ := net.Pipe()
	var gid GID
	var remote Endpoint
	window := good(b.pd.AllocMW(MWType2))(t)
	dm := good(r.c.AllocDM(DMConfig{Size: 64}))(t)
	for name, err := range map[string]error{
		"Context.CreateCQ":       second(r.c.CreateCQ(CQConfig{})),
		"Context.QueryPort":      second(r.c.QueryPort(0)),
		"Context.PKeys":          second(r.c.PKeys(9)),
		"Context.PKeyIndex":      second(r.c.PKeyIndex(9, 0xffff)),
		"Context.GIDs":           second(r.c.GIDs(9)),
		"Context.QueryGID":       second(r.c.QueryGID(1, 1<<20)),
		"Context.RankGIDs":       second(r.c.RankGIDs(9, netip.Addr{})),
		"Context.SelectGID":      second(r.c.SelectGID(9, netip.Addr{})),
		"Context.AHAttrFromWC":   second(r.c.AHAttrFromWC(1, &WC{Flags: WCGRH}, nil)),
		"Context.AHAttrFromKey":  second(r.c.AHAttrFromKey(9, AHKey{})),
		"PD.CreateAHFromWC":      second(b.pd.CreateAHFromWC(1, &WC{Flags: WCGRH}, nil)),
		"PD.AllocMW":             second(b.pd.AllocMW(9)),
		"PD.RegDM":               second(b.pd.RegDM(nil, 0, 4, 0)),
		"DM.ReadAt":              second(dm.ReadAt(make([]byte, 4), 1)),
		"DM.WriteAt":             second(dm.WriteAt(make([]byte, 8), 60)),
		"PD.RegMR":               second(b.pd.RegMR(nil, 0)),
		"PD.RegMRIOVA":           second(b.pd.RegMRIOVA(nil, 0, 0)),
		"PD.RegImplicit":         second(b.pd.RegImplicit(0)),
		"PD.Alloc":               second(b.pd.Alloc(0, 0)),
		"PD.CreateQP":            second(b.pd.CreateQP(QPConfig{})),
		"PD.CreateSRQ":           second(b.pd.CreateSRQ(SRQConfig{})),
		"CQ.PollWait":            second(b.cq.PollWait(context.Background(), nil)),
		"CQ.Resize":              b.cq.Resize(0),
		"MR.Rereg":               b.mr.Rereg(0, nil, nil, 0),
		"MW.Bind":                window.Bind(b.qp, 1, 0, MWRange{MR: b.mr, Len: 8}),
		"QP.Connect":             b.ud.qp.Connect(remote),
		"QP.Handshake":           b.ud.qp.Handshake(context.Background(), ours),
		"QP.Ready":               b.qp.Ready(),
		"QP.AttachMcast":         b.qp.AttachMcast(group, 0),
		"QP.DetachMcast":         b.ud.qp.DetachMcast(group, 0),
		"PD.AllocParentDomain":   second(b.pd.AllocParentDomain(ParentDomainConfig{TD: foreign})),
		"XRCD.CreateQP":          second(b.xrc.x.CreateQP(QPConfig{Type: RC})),
		"ImportDevice":           second(ImportDevice(-1)),
		"Context.ImportPD":       second(r.c.ImportPD(99)),
		"PD.ImportMR":            second(b.pd.ImportMR(99)),
		"Context.ImportDM":       second(r.c.ImportDM(99)),
		"XRCD.OpenQP":            second(b.xrc.x.OpenQP(99)),
		"SRQ.Modify":             b.ud.srq.Modify(SRQAttr{MaxWR: -1}, SRQMaskMaxWR),
		"WC.AHKey":               second((&WC{Flags: WCGRH}).AHKey(nil)),
		"Endpoint.UnmarshalText": remote.UnmarshalText([]byte("here")),
		"GID.UnmarshalText":      gid.UnmarshalText([]byte("here")),
	} {
		all[name] = failure{Err: err, Want: ErrInvalid}
	}
}

// failBusy closes objects that are in use.
func failBusy(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	b.xrc = r.crossing(t, b, false)
	td := good(r.c.AllocTD())(t)
	good(b.pd.AllocParentDomain(ParentDomainConfig{TD: td}))(t)
	ch := good(r.c.CreateCompChannel())(t)
	good(r.c.CreateCQ(CQConfig{Entries: 1, Channel: ch}))(t)
	dm := good(r.c.AllocDM(DMConfig{Size: 64}))(t)
	good(b.pd.RegDM(dm, 0, 4, 0))(t)
	for name, err := range map[string]error{
		"CompChannel.Close": ch.Close(),
		"CQ.Close":          b.cq.Close(),
		"PD.Close":          b.pd.Close(),
		"TD.Close":          td.Close(),
		"DM.Close":          dm.Close(),
		"XRCD.Close":        b.xrc.x.Close(),
		"SRQ.Close":         b.ud.srq.Close(),
	} {
		all[name] = failure{Err: err, Want: ErrBusy}
	}
}

// failKernel makes calls that fail only if the kernel refuses the command.
func failKernel(t *testing.T, all map[string]failure) {
	const says = "If the kernel refuses"
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	window := good(b.pd.AllocMW(MWType2))(t)
	for name, close := range map[string]func() error{
		"QP.Close": b.qp.Close, "AH.Close": b.ud.ah.Close, "MW.Close": window.Close, "MR.Close": b.mr.Close,
	} {
		r.refuseNext(unix.EPERM)
		all[name] = failure{Err: close(), Want: unix.EPERM, Doc: says}
		r.k.Set(func() { r.k.FailAt = 0 })
	}
	other := bareRig()
	c := good(other.open(t))(t)
	good(c.AllocPD())(t)
	other.refuseNext(unix.EPERM)
	all["Context.Close"] = failure{Err: c.Close(), Want: unix.EPERM, Doc: says}
	other.k.Unplug() // the descriptor is closed, so the kernel must have released its objects
	other.k.Close(t)
}

// refuseNext makes the kernel refuse the next command.
func (r *rig) refuseNext(errno unix.Errno) {
	n := len(r.k.Log()) + 1
	r.k.Set(func() { r.k.FailAt, r.k.FailWith = n, errno })
}

func third[A, B any](_ A, _ B, err error) error { return err }

// failOther makes the calls that belong to no other group.
func failOther(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	flushed := WC{Status: WCWRFlushErr}
	for name, f := range map[string]failure{
		"Open":                   {Err: second(Open("no such device")), Want: ErrNoDevice},
		"Devices":                {Err: explainDevices(&nldevError{unix.EPROTONOSUPPORT}), Want: ErrNoDevice},
		"Device.Open":            {Err: second(Device{Name: "rxe9"}.Open()), Want: ErrNoNode, Doc: "See the function [Open]"},
		"QP.PostSend":            {Err: second(fresh.PostSend(SendWR{})), Want: ErrState},
		"QP.PostRecv":            {Err: second(fresh.PostRecv(RecvWR{})), Want: ErrState, Doc: "as for [QP.PostSend]"},
		"QP.QueryECE":            {Err: second(b.qp.QueryECE()), Want: ErrNotSupported},
		"CQ.Moderate":            {Err: b.cq.Moderate(1, 1), Want: ErrNotSupported},
		"Context.QueryPortSpeed": {Err: second(r.c.QueryPortSpeed(1)), Want: ErrNotSupported},
		"PD.RegDMABuf":           {Err: second(b.pd.RegDMABuf(0, 0, 4096, 0, 0)), Want: ErrNotSupported},
		"PD.AdviseMR":            {Err: b.pd.AdviseMR(AdvicePrefetch, 0, MRRange{MR: b.mr, Len: 8}), Want: ErrInvalid},
		"WC.Err":                 {Err: flushed.Err(), Want: WCWRFlushErr, Doc: "the status"},
	} {
		all[name] = f
	}
}
