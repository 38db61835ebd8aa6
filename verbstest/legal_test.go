package verbstest_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A reporter is a test that keeps what is reported. end runs its cleanup.
type reporter struct {
	testing.TB
	mu       sync.Mutex
	errors   []string
	logs     []string
	failed   bool
	cleanups []func()
}

func (r *reporter) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.errors, r.failed = append(r.errors, fmt.Sprintf(format, args...)), true
}

func (r *reporter) Error(args ...any) { r.Errorf("%s", fmt.Sprint(args...)) }

func (r *reporter) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *reporter) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *reporter) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

func (r *reporter) end() {
	for _, f := range slices.Backward(r.cleanups) {
		f()
	}
}

// TestLateReceive checks that a message may wait for its receive, unless it is lost in the end.
func TestLateReceive(t *testing.T) {
	for _, c := range []struct {
		name  string
		retry uint8
		post  bool // the receive, when the message waits
		want  string
	}{
		{"received", 7, true, ""},
		{"closed", 7, false, "receive-late: posted at legal_test.go:"},
		{"no retries", 0, false, "receive-late: posted at legal_test.go:"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &reporter{TB: t}
			m := verbstest.NewNetwork(r).Machine()
			m.Run(func() { sendLate(t, c.retry, c.post) })
			r.end()
			switch {
			case c.want == "" && len(r.errors) > 0, c.want != "" && len(r.errors) != 1:
				t.Errorf("reported: %q", r.errors)
			case c.want != "" && !strings.Contains(r.errors[0], c.want):
				t.Errorf("reported: %s", r.errors[0])
			}
		})
	}
}

// sendLate sends a message before its receive is posted.
func sendLate(t *testing.T, retry uint8, post bool) {
	t.Helper()
	c := must(uverbs.Open(""))(t)
	defer c.Close()
	pd, cq := must(c.AllocPD())(t), must(c.CreateCQ(uverbs.CQConfig{Entries: 16}))(t)
	mr := must(pd.Alloc(64, uverbs.LocalWrite))(t)
	var qps [2]*uverbs.QP
	for i := range qps {
		qps[i] = must(pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1}))(t)
	}
	a, b := qps[0], qps[1]
	check(t, b.Connect(must(a.Endpoint())(t)))
	own, peer := must(a.Endpoint())(t), must(b.Endpoint())(t)
	check(t, a.Init())
	check(t, a.Modify(uverbs.QPAttr{State: uverbs.StateRTR, AV: must(a.AHAttr(peer))(t), PathMTU: peer.MTU,
		DestQPN: peer.QPN, RQPSN: peer.PSN, MaxDestRdAtomic: 1, MinRNRTimer: 12}, uverbs.MaskState|uverbs.MaskAV|
		uverbs.MaskPathMTU|uverbs.MaskDestQPN|uverbs.MaskRQPSN|uverbs.MaskMaxDestRdAtomic|uverbs.MaskMinRNRTimer))
	check(t, a.Modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: own.PSN, MaxRdAtomic: 1, Timeout: 14, RetryCnt: 7,
		RNRRetry: retry}, uverbs.MaskState|uverbs.MaskSQPSN|uverbs.MaskMaxRdAtomic|uverbs.MaskTimeout|
		uverbs.MaskRetryCnt|uverbs.MaskRNRRetry))
	must(a.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{mr.SGE(0, 64)}}))(t)
	if post {
		must(b.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{mr.SGE(0, 64)}}))(t)
	}
	var wcs [1]uverbs.WC
	if post || retry == 0 {
		must(cq.PollWait(t.Context(), wcs[:]))(t)
	}
	check(t, a.Close())
	check(t, b.Close())
	check(t, mr.Close())
	check(t, cq.Close())
	check(t, pd.Close())
}
