package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// allocTD allocates a thread domain. It skips the test if the device does not support them.
func allocTD(t testing.TB, dev *uverbs.Context) *uverbs.TD {
	t.Helper()
	d, err := dev.AllocTD()
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.ThreadDomains, err)
	}
	check(t, err)
	return d
}

// TestDeviceThreadDomains sends messages between QPs of many thread domains.
func TestDeviceThreadDomains(t *testing.T) {
	l := newLoop(t, nil)
	const domains, each = 6, 3
	for d := range domains {
		p := must(l.pd.AllocParentDomain(uverbs.ParentDomainConfig{TD: allocTD(t, l.dev)}))(t)
		cq := must(l.dev.CreateCQ(uverbs.CQConfig{Entries: 64, PD: p}))(t)
		var qps [each]*uverbs.QP
		for i := range qps {
			qps[i] = must(p.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 8, MaxRecvWR: 8, MaxInline: 64}))(t)
			check(t, qps[i].Connect(endpoint(t, qps[i])))
		}
		e := end{cq: cq, mr: l.a.mr}
		for i := range 30 {
			e.qp = qps[i%each]
			receive(t, e.qp, uverbs.RecvWR{WRID: 1, SGL: []uverbs.SGE{l.a.mr.SGE(100, 8)}})
			wr := uverbs.SendWR{WRID: 2, Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: []byte{byte(d), byte(i), 3}}
			if i%2 == 0 {
				wr.Inline, wr.SGL = nil, []uverbs.SGE{l.a.mr.SGE(0, 3)}
				copy(l.a.mr.Bytes(), []byte{byte(d), byte(i), 3})
			}
			post(t, e.qp, wr)
			for range 2 {
				wc := l.completion(t, e)
				if err := wc.Err(); err != nil || wc.QPNum != e.qp.QPN() {
					t.Fatalf("domain %d, message %d: %+v", d, i, wc)
				}
			}
			same(t, l.a.mr.Bytes()[100:103], []byte{byte(d), byte(i), 3})
		}
		if d%2 == 0 { // the next domain reuses its register
			for _, q := range qps {
				check(t, q.Close())
			}
			check(t, cq.Close())
			check(t, p.Close())
		}
	}
}
