package devicetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/features"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

const patience = 2 * time.Minute

// openDevice opens the device under test and closes it when the test ends.
func openDevice(t testing.TB) *uverbs.Context {
	t.Helper()
	c, err := uverbs.Open(deviceName(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { check(t, c.Close()) })
	return c
}

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// typeFeatures has the features of the types of QP that not all devices have.
var typeFeatures = map[uverbs.QPType]string{uverbs.RC: features.RC, uverbs.UC: features.UC, uverbs.UD: features.UD}

// typedQP creates a QP. It skips the test if the device has no QPs of the type.
func typedQP(t testing.TB, pd *uverbs.PD, cfg uverbs.QPConfig) *uverbs.QP {
	t.Helper()
	qp, err := pd.CreateQP(cfg)
	skipType(t, cfg.Type, err)
	return must(qp, err)(t)
}

// skipType skips the test if err, of CreateQP, is that the device has no QPs of the type.
func skipType(t testing.TB, kind uverbs.QPType, err error) {
	t.Helper()
	if feature := typeFeatures[kind]; feature != "" && errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, feature, err)
	}
}

// needEndpoints skips the test if programs cannot connect the device's QPs.
func needEndpoints(t testing.TB, dev *uverbs.Context) {
	t.Helper()
	if rnic(dev) {
		features.Missing(t, features.Endpoint, errors.New("the device is one of iWARP"))
	}
}

// endpoint returns the Endpoint of a QP. It skips the test if programs cannot connect the device's QPs.
func endpoint(t testing.TB, qp *uverbs.QP) uverbs.Endpoint {
	t.Helper()
	e, err := qp.Endpoint()
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.Endpoint, err)
	}
	return must(e, err)(t)
}

// A loop is a pair of connected QPs of one device, of type RC by default. Each has its own CQ
// and buffer.
type loop struct {
	ctx  context.Context
	dev  *uverbs.Context
	pd   *uverbs.PD
	a, b end
}

type end struct {
	cq *uverbs.CQ
	qp *uverbs.QP
	mr *uverbs.MR
}

const bufSize = 1 << 16

// newLoop creates a loop. adjust, which may be nil, changes the configuration of the QPs.
func newLoop(t testing.TB, adjust func(*uverbs.QPConfig)) *loop {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	l := &loop{ctx: ctx, dev: openDevice(t)}
	l.pd = must(l.dev.AllocPD())(t)
	l.a, l.b = l.newEnd(t, adjust), l.newEnd(t, adjust)
	ea, eb := endpoint(t, l.a.qp), endpoint(t, l.b.qp)
	check(t, l.a.qp.Connect(eb))
	check(t, l.b.qp.Connect(ea))
	return l
}

const allAccess = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic

func (l *loop) newEnd(t testing.TB, adjust func(*uverbs.QPConfig)) end {
	t.Helper()
	needEndpoints(t, l.dev)
	var e end
	e.cq = must(l.dev.CreateCQ(uverbs.CQConfig{Entries: 256}))(t)
	cfg := uverbs.QPConfig{Type: uverbs.RC, SendCQ: e.cq, MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4,
		MaxInline: 128, Access: uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic}
	if adjust != nil {
		adjust(&cfg)
	}
	e.qp = typedQP(t, l.pd, cfg)
	e.mr = must(l.pd.Alloc(bufSize, allAccess))(t)
	return e
}

// fill fills an end's buffer with a pattern that depends on the offset.
func (e end) fill(seed byte) {
	for i, b := 0, e.mr.Bytes(); i < len(b); i++ {
		b[i] = seed + byte(i*7) + byte(i>>8)
	}
}

// completion waits for one completion of e.
func (l *loop) completion(t testing.TB, e end) uverbs.WC {
	t.Helper()
	var wcs [1]uverbs.WC
	if _, err := e.cq.PollWait(l.ctx, wcs[:]); err != nil {
		t.Fatal(err)
	}
	return wcs[0]
}

// success waits for a completion of e and checks its fields.
func (l *loop) success(t testing.TB, e end, wrID uint64, op uverbs.WCOpcode) uverbs.WC {
	t.Helper()
	wc := l.completion(t, e)
	check(t, wc.Err())
	if wc.WRID != wrID || wc.Opcode != op || wc.QPNum != e.qp.QPN() {
		t.Fatalf("completion %+v, want wr_id %d, opcode %d, QP %d", wc, wrID, op, e.qp.QPN())
	}
	return wc
}

func post(t testing.TB, qp *uverbs.QP, wrs ...uverbs.SendWR) {
	t.Helper()
	if n, err := qp.PostSend(wrs...); err != nil || n != len(wrs) {
		t.Fatalf("PostSend = %d, %v; want %d", n, err, len(wrs))
	}
}

func receive(t testing.TB, qp *uverbs.QP, wrs ...uverbs.RecvWR) {
	t.Helper()
	if n, err := qp.PostRecv(wrs...); err != nil || n != len(wrs) {
		t.Fatalf("PostRecv = %d, %v; want %d", n, err, len(wrs))
	}
}

func same(t testing.TB, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes arrived, not those that were sent", len(got))
	}
}
