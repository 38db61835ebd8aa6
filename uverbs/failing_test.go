package uverbs

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A failure is a call that fails on purpose.
type failure struct {
	err  error
	want error
	// doc is what the function's comment has to say of it; "" for want's name.
	doc string
}

// cannotFail are methods whose error is that of an interface.
var cannotFail = []string{"Endpoint.MarshalText", "GID.MarshalText"}

// Every exported function that answers an error is made to, and its comment
// lists that error.
func TestEveryFunctionFails(t *testing.T) {
	failures := map[string]failure{}
	for _, add := range []func(*testing.T, map[string]failure){failClosed, failInvalid, failBusy, failKernel, failOther} {
		add(t, failures)
	}
	names := map[error]string{ErrClosed: "[ErrClosed]", ErrBusy: "[ErrBusy]", ErrInvalid: "[ErrInvalid]", ErrNotSupported: "[ErrNotSupported]",
		ErrNoDevice: "[ErrNoDevice]", ErrState: "[ErrState]", ErrNoAH: "[ErrNoAH]", ErrNoMW: "[ErrNoMW]"}
	docs := functionsWithErrors(t)
	for name, doc := range docs {
		f, found := failures[name]
		switch {
		case slices.Contains(cannotFail, name):
			if !strings.Contains(doc, "cannot fail") {
				t.Errorf("%s: the comment does not say that it cannot fail", name)
			}
			continue
		case !found:
			t.Errorf("%s: no call here makes it fail", name)
			continue
		case !errors.Is(f.err, f.want):
			t.Errorf("%s: error %v, want %v", name, f.err, f.want)
		}
		if f.doc == "" {
			f.doc = names[f.want]
		}
		if f.doc == "" || !strings.Contains(strings.Join(strings.Fields(doc), " "), f.doc) {
			t.Errorf("%s: the comment does not say %q:\n%s", name, f.doc, doc)
		}
	}
	for name := range failures {
		if _, found := docs[name]; !found {
			t.Errorf("%s is no exported function that answers an error", name)
		}
	}
}

// functionsWithErrors are the comments of the package's exported functions that
// answer an error.
func functionsWithErrors(t *testing.T) map[string]string {
	t.Helper()
	docs := map[string]string{}
	files := good(filepath.Glob("*.go"))(t)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file := good(parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments))(t)
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && answersError(f) {
				if name := qualified(f); ast.IsExported(name) {
					docs[name] = f.Doc.Text()
				}
			}
		}
	}
	if len(docs) < 60 {
		t.Fatalf("only %d functions were found", len(docs))
	}
	return docs
}

func answersError(f *ast.FuncDecl) bool {
	return f.Type.Results != nil && slices.ContainsFunc(f.Type.Results.List, func(r *ast.Field) bool {
		id, ok := r.Type.(*ast.Ident)
		return ok && id.Name == "error"
	})
}

func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name + "." + f.Name.Name
}

// failClosed makes calls on what has been closed.
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
		"SRQ.PostRecv":              second(b.ud.srq.PostRecv(RecvWR{})),
		"SRQ.Query":                 second(b.ud.srq.Query()),
		"SendBatch.Submit":          sent.Submit(),
	} {
		all[name] = failure{err: err, want: ErrClosed}
	}
}

// failInvalid makes calls with arguments that are wrong.
func failInvalid(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	group := GID{0: 0xff, 15: 1}
	ours, _ := net.Pipe()
	var gid GID
	var remote Endpoint
	window := good(b.pd.AllocMW(MWType2))(t)
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
		"PD.CreateAHFromWC":      second(b.pd.CreateAHFromWC(1, &WC{Flags: WCGRH}, nil)),
		"PD.AllocMW":             second(b.pd.AllocMW(9)),
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
		"SRQ.Modify":             b.ud.srq.Modify(SRQAttr{MaxWR: -1}, SRQMaskMaxWR),
		"Endpoint.UnmarshalText": remote.UnmarshalText([]byte("here")),
		"GID.UnmarshalText":      gid.UnmarshalText([]byte("here")),
	} {
		all[name] = failure{err: err, want: ErrInvalid}
	}
}

// failBusy closes what is in use.
func failBusy(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	ch := good(r.c.CreateCompChannel())(t)
	good(r.c.CreateCQ(CQConfig{Entries: 1, Channel: ch}))(t)
	for name, err := range map[string]error{
		"Context.CloseIdle": r.c.CloseIdle(),
		"CompChannel.Close": ch.Close(),
		"CQ.Close":          b.cq.Close(),
		"PD.Close":          b.pd.Close(),
		"SRQ.Close":         b.ud.srq.Close(),
	} {
		all[name] = failure{err: err, want: ErrBusy}
	}
}

// failKernel has the kernel refuse what nothing else does.
func failKernel(t *testing.T, all map[string]failure) {
	const says = "what the kernel says"
	r := newRig(t)
	b := r.bundle(t, false)
	b.ud = r.meeting(t, b, false)
	window := good(b.pd.AllocMW(MWType2))(t)
	for name, close := range map[string]func() error{
		"QP.Close": b.qp.Close, "AH.Close": b.ud.ah.Close, "MW.Close": window.Close, "MR.Close": b.mr.Close,
	} {
		r.refuseNext(unix.EPERM)
		all[name] = failure{close(), unix.EPERM, says}
		r.k.Set(func() { r.k.FailAt = 0 })
	}
	other := bareRig()
	c := good(other.open(t))(t)
	good(c.AllocPD())(t)
	other.refuseNext(unix.EPERM)
	all["Context.Close"] = failure{c.Close(), unix.EPERM, says}
	other.k.Unplug() // the descriptor is closed: so has the kernel let it go
	other.k.Close(t)
}

// refuseNext has the kernel refuse the next command.
func (r *rig) refuseNext(errno unix.Errno) {
	n := len(r.k.Log()) + 1
	r.k.Set(func() { r.k.FailAt, r.k.FailWith = n, errno })
}

// failOther is what no group has.
func failOther(t *testing.T, all map[string]failure) {
	r := newRig(t)
	b := r.bundle(t, false)
	fresh := good(b.pd.CreateQP(QPConfig{Type: RC, SendCQ: b.cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	flushed := WC{Status: WCWRFlushErr}
	for name, f := range map[string]failure{
		"Open":                   {err: second(Open("no such device")), want: ErrNoDevice},
		"Devices":                {err: explainDevices(&nldevError{unix.EPROTONOSUPPORT}), want: ErrNoDevice},
		"Device.Open":            {err: second(Device{Name: "rxe9"}.Open()), want: ErrNoNode, doc: "See the function [Open]"},
		"QP.PostSend":            {err: second(fresh.PostSend(SendWR{})), want: ErrState},
		"QP.PostRecv":            {err: second(fresh.PostRecv(RecvWR{})), want: ErrState, doc: "as for [QP.PostSend]"},
		"CQ.Moderate":            {err: b.cq.Moderate(1, 1), want: ErrNotSupported},
		"Context.QueryPortSpeed": {err: second(r.c.QueryPortSpeed(1)), want: ErrNotSupported},
		"PD.RegDMABuf":           {err: second(b.pd.RegDMABuf(0, 0, 4096, 0, 0)), want: ErrNotSupported},
		"PD.AdviseMR":            {err: b.pd.AdviseMR(AdvicePrefetch, 0, MRRange{MR: b.mr, Len: 8}), want: ErrInvalid},
		"ProviderAVOf":           {err: second(ProviderAVOf(nil, b.pd)), want: ErrNoAH},
		"ProviderBindOf":         {err: second(ProviderBindOf(&MWBind{}, b.qp)), want: ErrNoMW},
		"WC.Err":                 {err: flushed.Err(), want: WCWRFlushErr, doc: "the status"},
	} {
		all[name] = f
	}
}
