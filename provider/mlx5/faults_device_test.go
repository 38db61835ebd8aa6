//go:build device

package mlx5

import (
	"bytes"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDevicePageFaults lets queue pairs of an SRQ, and an XRC SRQ, receive into absent pages. One goroutine polls while
// another posts. The test checks that each receive completes once, with its message.
func TestDevicePageFaults(t *testing.T) {
	for name, x := range map[string]bool{"SRQ": false, "XRC SRQ": true} {
		t.Run(name, func(t *testing.T) {
			c := good(uverbs.Open(deviceName(t)))(t)
			t.Cleanup(func() { check(t, c.Close()) })
			if a := good(c.QueryDevice())(t); a.ODP.RC&uverbs.ODPSRQRecv == 0 {
				features.Missing(t, features.ODP, uverbs.ErrNotSupported)
			}
			newPager(t, c, x).run(t)
		})
	}
}

const (
	pagerRoom   = 16 // receives of the SRQ
	pagerRounds = 40
	pagerQPs    = 3
)

// A pager has senders and an SRQ. Each receive of the SRQ is on a separate page.
type pager struct {
	pd       *uverbs.PD
	srq      *uverbs.SRQ
	from, to *uverbs.MR
	cqs      [2]*uverbs.CQ // of sends and of receives
	senders  []*uverbs.QP
	srqn     uint32
	size     int // of a message
}

func newPager(t *testing.T, c *uverbs.Context, x bool) *pager {
	p := &pager{pd: good(c.AllocPD())(t), size: good(c.QueryPort(1))(t).ActiveMTU.Bytes()}
	for i := range p.cqs {
		p.cqs[i] = good(c.CreateCQ(uverbs.CQConfig{Entries: 64}))(t)
	}
	p.from = good(p.pd.Alloc(p.size, 0))(t)
	p.to = good(p.pd.Alloc(pagerRoom*os.Getpagesize(), uverbs.LocalWrite|uverbs.OnDemand))(t)
	cfg := uverbs.SRQConfig{MaxWR: pagerRoom - 1, MaxSGE: 1}
	var domain *uverbs.XRCD
	if x {
		domain = good(c.OpenXRCD(nil, 0))(t)
		cfg.XRCD, cfg.CQ = domain, p.cqs[1]
	}
	p.srq = good(p.pd.CreateSRQ(cfg))(t)
	p.srqn = p.srq.SRQN()
	for range pagerQPs {
		p.senders = append(p.senders, p.sender(t, domain))
	}
	return p
}

// sender returns a QP whose messages arrive at the SRQ, either through the QP itself or through
// the target of an XRC domain.
func (p *pager) sender(t *testing.T, domain *uverbs.XRCD) *uverbs.QP {
	if domain == nil {
		q := good(p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: p.cqs[0], RecvCQ: p.cqs[1], SRQ: p.srq,
			MaxSendWR: pagerRoom}))(t)
		check(t, q.Connect(good(q.Endpoint())(t)))
		return patient(t, q, uverbs.MaskMaxDestRdAtomic|uverbs.MaskMinRNRTimer)
	}
	q := good(p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.XRCSend, SendCQ: p.cqs[0], MaxSendWR: pagerRoom}))(t)
	target := good(domain.CreateQP(uverbs.QPConfig{}))(t)
	check(t, q.Connect(good(target.Endpoint())(t)))
	check(t, target.Connect(good(q.Endpoint())(t)))
	return patient(t, q, 0)
}

// patient moves a connected QP to RTS again, with a timeout that is longer than page faults on a busy machine. more has
// the attributes that RTR requires besides the path.
func patient(t *testing.T, q *uverbs.QP, more uverbs.QPMask) *uverbs.QP {
	a := good(q.Query(uverbs.MaskState | uverbs.MaskAV))(t) // the driver returns all attributes
	for _, step := range []struct {
		state uverbs.QPState
		mask  uverbs.QPMask
	}{
		{uverbs.StateReset, 0},
		{uverbs.StateInit, uverbs.MaskPKeyIndex | uverbs.MaskPort | uverbs.MaskAccess},
		{uverbs.StateRTR, uverbs.MaskAV | uverbs.MaskPathMTU | uverbs.MaskDestQPN | uverbs.MaskRQPSN | more},
		{uverbs.StateRTS,
			uverbs.MaskSQPSN | uverbs.MaskTimeout | uverbs.MaskRetryCount | uverbs.MaskRNRRetryCount | uverbs.MaskMaxRdAtomic},
	} {
		a.State, a.Timeout = step.state, 20 // 4 s
		check(t, q.Modify(a, uverbs.MaskState|step.mask))
	}
	return q
}

func (p *pager) run(t *testing.T) {
	polled := make(chan []uint64)
	posted := make(chan bool)
	go func() {
		for range posted {
			polled <- p.poll(t)
		}
		close(polled)
	}()
	defer func() {
		close(posted)
		<-polled
	}()
	for round := range pagerRounds {
		for i := range p.from.Bytes() {
			p.from.Bytes()[i] = byte(i*3 + i>>8 + round)
		}
		check(t, unix.Madvise(p.to.Bytes(), unix.MADV_DONTNEED)) // pinned memory would keep its old pages
		posted <- true
		for i := range pagerRoom - 1 {
			good(p.srq.PostRecv(uverbs.RecvWR{WRID: uint64(i), SGL: []uverbs.SGE{p.to.SGE(i*os.Getpagesize(), p.size)}}))(t)
			good(p.senders[i%pagerQPs].PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, RemoteSRQN: p.srqn,
				SGL: []uverbs.SGE{p.from.SGE(0, p.size)}}))(t)
		}
		ids := <-polled
		if len(ids) != pagerRoom-1 {
			t.Fatalf("round %d: receives %d complete", round, ids)
		}
		seen := make(map[uint64]bool)
		for _, id := range ids {
			if seen[id] {
				t.Fatalf("round %d: receive %d completes twice", round, id)
			}
			seen[id] = true
			if got := p.to.Bytes()[int(id)*os.Getpagesize():][:p.size]; !bytes.Equal(got, p.from.Bytes()) {
				t.Fatalf("round %d: receive %d has %x, want %x", round, id, got[:16], p.from.Bytes()[:16])
			}
		}
	}
	if s := implOf(p.srq); int(s.slots) != len(s.ids) {
		t.Error("no page was absent")
	}
}

// poll returns the receives of a round once all its sends have completed. It fails the test on an
// error.
func (p *pager) poll(t *testing.T) (ids []uint64) {
	var wcs [8]uverbs.WC
	sends := 0
	for deadline := time.Now().Add(time.Minute); sends < pagerRoom-1 || len(ids) < pagerRoom-1; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Errorf("%d sends have completed, and receives %d", sends, ids)
			return nil
		}
		for i, q := range p.cqs {
			n, err := q.Poll(wcs[:])
			if err != nil {
				t.Error(err)
				return nil
			}
			for _, wc := range wcs[:n] {
				if err := wc.Err(); err != nil {
					t.Error(err)
					return nil
				}
				if i == 0 {
					sends++
				} else {
					ids = append(ids, wc.WRID)
				}
			}
		}
	}
	return ids
}
