package mistakes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A pair is two QPs of one device with a CQ and memory each, which talk to each other.
type pair struct {
	dev  *uverbs.Context
	pd   *uverbs.PD
	a, b end
	more []interface{ Close() error } // closed before the rest
}

type end struct {
	cq *uverbs.CQ
	qp *uverbs.QP
	mr *uverbs.MR
}

const (
	all  = uverbs.LocalWrite | uverbs.RemoteWrite | uverbs.RemoteRead | uverbs.RemoteAtomic
	size = 4096
	qkey = 0x11111111
	keys = 0x00ffff00 // the bits of a key that another region's key differs in
)

// A config is what the QPs of a pair have.
type config struct {
	kind    uverbs.QPType // 0: RC
	entries int           // of each CQ; 0: 64
	sends   int           // MaxSendWR; 0: 8
	access  uverbs.Access // of the QPs; 0: all
	srq     *uverbs.SRQ   // of b
	idle    bool          // b is not connected
}

func open(device string) *pair {
	p := &pair{dev: must(uverbs.Open(device))}
	p.pd = must(p.dev.AllocPD())
	return p
}

func newPair(device string, c config) *pair { return open(device).connect(c) }

func (p *pair) connect(c config) *pair {
	if c.kind == 0 {
		c.kind = uverbs.RC
	}
	if c.access == 0 && c.kind == uverbs.RC {
		c.access = all &^ uverbs.LocalWrite
	}
	p.a, p.b = p.end(c, nil), p.end(c, c.srq)
	if c.kind == uverbs.UD {
		check(errors.Join(p.a.qp.Ready(), p.b.qp.Ready()))
		return p
	}
	a, b := must(p.a.qp.Endpoint()), must(p.b.qp.Endpoint())
	check(p.a.qp.Connect(b))
	if !c.idle {
		check(p.b.qp.Connect(a))
	}
	return p
}

func (p *pair) end(c config, srq *uverbs.SRQ) (e end) {
	entries, sends := c.entries, c.sends
	if entries == 0 {
		entries = 64
	}
	if sends == 0 {
		sends = 8
	}
	e.cq = must(p.dev.CreateCQ(uverbs.CQConfig{Entries: entries}))
	cfg := uverbs.QPConfig{Type: c.kind, SendCQ: e.cq, MaxSendWR: sends, MaxRecvWR: 8, MaxInline: 16, Access: c.access,
		SRQ: srq}
	if c.kind == uverbs.UD {
		cfg.QKey = qkey
	}
	e.qp = must(p.pd.CreateQP(cfg))
	e.mr = must(p.pd.Alloc(size, all))
	return e
}

// close closes everything.
func (p *pair) close() {
	var errs []error
	for _, c := range p.more {
		errs = append(errs, c.Close())
	}
	for _, e := range []end{p.a, p.b} {
		errs = append(errs, e.qp.Close(), e.cq.Close(), e.mr.Close())
	}
	check(errors.Join(append(errs, p.pd.Close(), p.dev.Close())...))
}

// to returns the address of the other end for datagrams.
func (p *pair) to(other end) *uverbs.AH {
	ah := must(p.pd.CreateAH(must(p.a.qp.AHAttr(must(other.qp.Endpoint())))))
	p.more = append(p.more, ah)
	return ah
}

const (
	patience = 20 * time.Second       // for a completion that comes
	lost     = 300 * time.Millisecond // for one that does not
)

// completion waits for a completion and describes it.
func completion(e end, patience time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wcs [1]uverbs.WC
	if _, err := e.cq.PollWait(ctx, wcs[:]); errors.Is(err, context.DeadlineExceeded) {
		return "no completion"
	} else if err != nil {
		return fmt.Sprint(err)
	}
	if err := wcs[0].Err(); err != nil {
		return strings.TrimPrefix(err.Error(), "uverbs: completion failed: ")
	}
	return "success"
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
