package uverbs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// A TD is a thread domain: a promise that what is made in it is used by one
// goroutine at a time, which saves locks, and registers of the device's that no
// other queue rings. It is named by a parent domain, see [PD.AllocParentDomain].
type TD struct {
	object
	impl ProviderTD
}

// AllocTD makes a thread domain: ibv_alloc_td(3). [ErrNotSupported] where the
// device's queues have nothing that could be a domain's own: QPConfig,
// SRQConfig and CQConfig have SingleGoroutine, which leaves the locks out there
// too. Else the error is what the kernel says when the device has no registers
// left. [ErrClosed] after Close of the Context.
func (c *Context) AllocTD() (*TD, error) {
	d := &TD{}
	d.object = object{ctx: c, kind: "TD", rank: rankTD, destroy: func() error { return nil }}
	d.retire = func() error { return d.impl.Retire() }
	if err := d.make(d.alloc); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *TD) alloc() error {
	const op = "allocate TD"
	p, ok := d.ctx.impl.(ProviderTDs)
	if !ok {
		return &Error{Op: op, Object: d.ctx.name, Kind: ErrNotSupported,
			Detail: "the driver has no thread domains: set SingleGoroutine of each queue, which leaves its locks out"}
	}
	var err error
	d.impl, err = p.AllocTD()
	return d.ctx.wrap(op, d.ctx.name, err, "")
}

// Context returns the context that d was made from.
func (d *TD) Context() *Context { return d.ctx }

// Close gives the domain's registers back: ibv_dealloc_td(3). [ErrBusy] while a
// parent domain names it. It is idempotent.
func (d *TD) Close() error { return d.close() }

// A ParentDomainConfig says what a parent domain has of its own: struct
// ibv_parent_domain_init_attr. Its zero value is a PD by another name.
type ParentDomainConfig struct {
	// TD, if not nil, is the thread domain of its queues. QPs and SRQs that are
	// made by the parent domain are SingleGoroutine, CQs are that name it in
	// CQConfig, and all of them belong to one goroutine at a time together.
	TD *TD

	// Alloc, if not nil, gives the memory that the rings of these queues and of
	// WQs lie in: n bytes at least, from an address that is a multiple of align.
	// With nil and no error the library maps them as it does without Alloc. An
	// error is that of the call that makes the queue, and errors.Is finds it. Alloc
	// may be called by several goroutines, and runs inside the create or the
	// Resize: it must not poll that CQ, nor close the domain or the Context.
	// Where rings are the kernel's memory, as on rxe, nobody calls it.
	Alloc func(n, align int) ([]byte, error)

	// Free gets back what Alloc gave, with its whole length. That is when no
	// goroutine can be inside of the queue any more: the garbage collector finds
	// out some time after the queue's Close, in a goroutine of the runtime's. So
	// Free must not lead to a queue: as a method of what holds one it would keep it
	// from being collected, and never be called.
	Free func(b []byte)
}

// AllocParentDomain makes a domain with the memory and the rights of p, whose
// queues have what cfg says: ibv_alloc_parent_domain(3). All that takes a PD
// takes it; QPs, SRQs, MRs, MWs and AHs of the two go together. [ErrInvalid] for a
// TD of another Context, and for Alloc without Free; [ErrClosed] after Close of p
// or the TD.
func (p *PD) AllocParentDomain(cfg ParentDomainConfig) (*PD, error) {
	const op = "allocate parent domain"
	base, d := p.base(), cfg.TD
	n := &PD{parent: base, td: d, give: cfg.Alloc, regain: cfg.Free}
	n.object = object{ctx: p.ctx, kind: "parent domain", rank: rankParent, parents: []*object{&base.object},
		destroy: func() error { return nil }}
	if (cfg.Alloc == nil) != (cfg.Free == nil) {
		return nil, invalid(op, p.String(), "Alloc and Free go together: what one gives the other gets back")
	}
	if d != nil {
		if d.ctx != p.ctx {
			return nil, invalid(op, p.String(), d.String()+" belongs to another Context than the PD")
		}
		n.parents = append(n.parents, &d.object)
	}
	err := n.make(func() error {
		n.handle, n.number = base.handle, base.handle
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// base is the PD that the kernel knows: p, unless that is a parent domain.
func (p *PD) base() *PD {
	if p != nil && p.parent != nil {
		return p.parent
	}
	return p
}

// single tells whether queues of p are used by one goroutine at a time.
func (p *PD) single() bool { return p != nil && p.td != nil }

// A ProviderTDs is a [ProviderContext] that has thread domains.
type ProviderTDs interface {
	AllocTD() (ProviderTD, error)
}

// A ProviderTD is a vendor's part of a [TD].
type ProviderTD interface {
	// Retire gives back what the domain has. Its queues are gone.
	Retire() error
}

// ProviderTDOf returns the vendor's part of the thread domain that q is made in,
// or nil.
func ProviderTDOf(q *QP) ProviderTD {
	if q == nil || !q.pd.single() {
		return nil
	}
	return q.pd.td.impl
}

// ProviderPDOf returns the PD that the AHs of q's requests belong to: that of
// [ProviderAVOf].
func ProviderPDOf(q *QP) *PD { return q.pd.base() }

// ProviderMemory asks the Alloc of the parent domain that a queue is made in, for
// n bytes that begin at a page; op is what for. It returns nil where there is no
// Alloc, or where that leaves it to the library. The bytes are zero. When the
// queue is not in use any more, free gets them. [ErrInvalid] when Alloc gives less.
func ProviderMemory(op string, pd *PD, n int) (b []byte, free func([]byte), err error) {
	if pd == nil || pd.give == nil {
		return nil, nil, nil
	}
	page := unix.Getpagesize()
	b, err = pd.give(n, page)
	switch {
	case err != nil:
		return nil, nil, &Error{Op: op, Object: pd.String(), Kind: err, Detail: fmt.Sprintf("the domain's Alloc, asked for %d bytes, says: %v", n, err)}
	case b == nil:
		return nil, nil, nil
	}
	if at := addressOf(b); len(b) < n || at%uint64(page) != 0 {
		pd.regain(b)
		return nil, nil, invalid(op, pd.String(), fmt.Sprintf("Alloc gave %d bytes at %#x: want %d or more, at a multiple of %d", len(b), at, n, page))
	}
	clear(b)
	return b, pd.regain, nil
}
