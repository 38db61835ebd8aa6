//go:build device

package limits

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience is the limit of every wait.
const patience = 30 * time.Second

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func device(t testing.TB) string {
	t.Helper()
	name := os.Getenv("GOVERBS_DEVICE")
	if name == "" {
		t.Fatal("set GOVERBS_DEVICE to the RDMA device to test, rxe0 for instance")
	}
	return name
}

func open(t testing.TB) *uverbs.Context {
	t.Helper()
	dev := must(uverbs.Open(device(t)))(t)
	t.Cleanup(func() { check(t, dev.Close()) })
	return dev
}

// address returns an IPv4 address of the device.
func address(t testing.TB) netip.Addr {
	t.Helper()
	dev := must(uverbs.Open(device(t)))(t)
	defer func() { check(t, dev.Close()) }()
	for _, g := range must(dev.GIDs(1))(t) {
		if a := g.GID.Addr().Unmap(); a.Is4() {
			return a
		}
	}
	t.Fatal("the device has no IPv4 address")
	return netip.Addr{}
}

// held counts everything that can leak.
type held struct {
	Kernel      map[string]uint64 // objects of the device
	Descriptors int
	Tracked     int // by package leak
}

func holds(t testing.TB) held {
	t.Helper()
	fds := must(os.ReadDir("/proc/self/fd"))(t)
	return held{must(nldev.Resources(device(t)))(t), len(fds), len(leak.Live())}
}

// sameAs checks that nothing was leaked. It waits a moment for the kernel and for
// goroutines that end.
func sameAs(t testing.TB, what string, before held) {
	t.Helper()
	var d string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if d = cmp.Diff(before, holds(t)); d == "" {
			return
		}
	}
	t.Errorf("%s: leak: (-before +after)\n%s", what, d)
}

// An end is a QP with its CQ and memory.
type end struct {
	cq *uverbs.CQ
	qp *uverbs.QP
	mr *uverbs.MR
}

const bufSize = 4096

func newEnd(t testing.TB, pd *uverbs.PD, entries int) end {
	t.Helper()
	var e end
	e.cq = must(pd.Context().CreateCQ(uverbs.CQConfig{Entries: entries}))(t)
	e.qp = must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: e.cq, MaxSendWR: 256, MaxRecvWR: 16,
		Access: uverbs.RemoteWrite}))(t)
	e.mr = must(pd.Alloc(bufSize, uverbs.LocalWrite|uverbs.RemoteWrite))(t)
	return e
}

// connect moves a QP to RTS with the given numbers of retries.
func connect(t testing.TB, qp *uverbs.QP, remote uverbs.Endpoint, retries, rnrRetries uint8) {
	t.Helper()
	local := must(qp.Endpoint())(t)
	if qp.State() == uverbs.StateReset {
		check(t, qp.Init())
	}
	check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: local.MTU, DestQPN: remote.QPN, RQPSN: remote.PSN,
		MaxDestRdAtomic: 1, MinRNRTimer: 1, AV: must(qp.AHAttr(remote))(t)},
		uverbs.MaskState|uverbs.MaskAV|uverbs.MaskPathMTU|uverbs.MaskDestQPN|uverbs.MaskRQPSN|uverbs.MaskMaxDestRdAtomic|
			uverbs.MaskMinRNRTimer))
	check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: local.PSN, Timeout: 12, RetryCount: retries,
		RNRRetryCount: rnrRetries, MaxRdAtomic: 1},
		uverbs.MaskState|uverbs.MaskSQPSN|uverbs.MaskTimeout|uverbs.MaskRetryCount|uverbs.MaskRNRRetryCount|
			uverbs.MaskMaxRdAtomic))
}

// write posts a WRITE from e to the other end.
func (e end) write(t testing.TB, to end, id uint64) {
	t.Helper()
	_, err := e.qp.PostSend(uverbs.SendWR{WRID: id, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled,
		SGL:        []uverbs.SGE{e.mr.SGE(0, 64)},
		RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey()})
	check(t, err)
}

// statuses polls n completions, which must be in the order of their requests.
func (e end) statuses(t testing.TB, n int) []uverbs.WCStatus {
	t.Helper()
	ctx := limited(t)
	var all []uverbs.WCStatus
	var wcs [8]uverbs.WC
	for len(all) < n {
		k, err := e.cq.PollWait(ctx, wcs[:])
		if err != nil {
			t.Fatalf("%v, after %v", err, all)
		}
		for _, wc := range wcs[:k] {
			if wc.WRID != uint64(len(all)) {
				t.Errorf("completion of request %d, want %d", wc.WRID, len(all))
			}
			all = append(all, wc.Status)
		}
	}
	return all
}

// isTyped checks that err has one of the library's types, has an advice, and matches
// target.
func isTyped(t testing.TB, what string, err error, target error, typed func(error) (detail string, ok bool)) {
	t.Helper()
	detail, ok := typed(err)
	if !errors.Is(err, target) || !ok || detail == "" {
		t.Errorf("%s: %T is not a typed error with an advice: %v", what, err, err)
	}
}
