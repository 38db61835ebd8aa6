package devicetest

import (
	"errors"
	"slices"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceNullMR uses a null MR to drop the middle of a received message, and the beginning of
// the data of a READ.
func TestDeviceNullMR(t *testing.T) {
	l := newLoop(t, nil)
	null, err := l.pd.AllocNullMR()
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.NullMR, err)
	}
	check(t, err)
	l.a.fill(1)
	l.b.fill(2)
	left := slices.Clone(l.b.mr.Bytes()[4000:5000])
	receive(t, l.b.qp, uverbs.RecvWR{WRID: 1,
		SGL: []uverbs.SGE{l.b.mr.SGE(0, 1000), null.SGE(1<<30, 3000), l.b.mr.SGE(1000, 3000)}})
	post(t, l.a.qp, uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{l.a.mr.SGE(0, 6000)}})
	l.success(t, l.a, 2, uverbs.WCSend)
	if wc := l.success(t, l.b, 1, uverbs.WCRecv); wc.ByteLen != 6000 {
		t.Errorf("%d bytes", wc.ByteLen)
	}
	a, b := l.a.mr.Bytes(), l.b.mr.Bytes()
	same(t, b[:1000], a[:1000])
	same(t, b[1000:3000], a[4000:6000])
	same(t, b[4000:5000], left)
	post(t, l.a.qp, uverbs.SendWR{WRID: 3, Opcode: uverbs.OpRead, Flags: uverbs.Signaled, RemoteAddr: l.b.mr.Addr(),
		RKey: l.b.mr.RKey(), SGL: []uverbs.SGE{null.SGE(0, 500), l.a.mr.SGE(8000, 500)}})
	l.success(t, l.a, 3, uverbs.WCRead)
	same(t, a[8000:8500], b[500:1000])
}
