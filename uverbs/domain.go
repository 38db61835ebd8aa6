package uverbs

import (
	"fmt"
	"github.com/goverbs/goverbs/internal/driver"

	"golang.org/x/sys/unix"
)

// A TD is a thread domain: a promise that only one goroutine at a time uses the objects that
// are created in it. This saves locks, and the domain's queues have doorbell registers that no
// other queue uses. A parent domain refers to it: see [PD.AllocParentDomain].
type TD struct {
	object
	impl driver.TD
}

// AllocTD allocates a thread domain: ibv_alloc_td(3). It returns [ErrNotSupported] if the
// device's queues have no resources that a domain could own. Then use SingleGoroutine of
// QPConfig, SRQConfig and CQConfig, which also omits the locks. It returns [ErrClosed] after
// Close of the Context, or the kernel's error if the device has no registers left.
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
	p, ok := d.ctx.impl.(driver.TDs)
	if !ok {
		return &Error{Op: op, Object: d.ctx.name, Kind: ErrNotSupported,
			Detail: "the driver has no thread domains: set SingleGoroutine of each queue, which leaves its locks out"}
	}
	var err error
	d.impl, err = p.AllocTD()
	return d.ctx.wrap(op, d.ctx.name, err, "")
}

// Context returns the context that d was allocated on.
func (d *TD) Context() *Context { return d.ctx }

// Close releases the domain's registers: ibv_dealloc_td(3). It returns [ErrBusy] while a parent
// domain refers to the thread domain. It is idempotent.
func (d *TD) Close() error { return d.close() }

// A ParentDomainConfig describes what the queues of a parent domain use: struct
// ibv_parent_domain_init_attr. The zero value describes a domain that behaves as its PD.
type ParentDomainConfig struct {
	// TD, if not nil, is the thread domain of the queues. QPs and SRQs that are created on the
	// parent domain are SingleGoroutine, and so are CQs that name it in CQConfig. Only one
	// goroutine at a time may use any of these queues.
	TD *TD

	// Alloc, if not nil, allocates the memory for the rings of these queues and of WQs: at
	// least n bytes at an address that is a multiple of align. If it returns nil and no error,
	// the library maps the memory as it does without Alloc. If it returns an error, the call
	// that creates the queue returns an error that wraps it. Several goroutines may call Alloc
	// at the same time. It runs inside the call that creates or resizes the queue: it may create
	// objects, but must not poll that CQ, nor close the domain or the Context. It is not called
	// if rings are the kernel's memory, as on rxe.
	Alloc func(n, align int) ([]byte, error)

	// Free receives the memory that Alloc returned, in its full length. It is called when no
	// goroutine can be using the queue any more. The garbage collector detects this some time
	// after the queue's Close, and Free runs in a goroutine of the runtime. So Free must not
	// refer to a queue: if it is, for example, a method of a value that refers to one, the
	// queue is never collected and Free is never called.
	Free func(b []byte)
}

// AllocParentDomain allocates a domain with the memory and the rights of p, whose queues are as
// described by cfg: ibv_alloc_parent_domain(3). It can be used wherever a PD can. QPs, SRQs,
// MRs, MWs and AHs of the two can be combined. It returns [ErrInvalid] for a TD of another
// Context, and if only one of Alloc and Free is set, and [ErrClosed] after Close of p or the
// TD.
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

// base returns the PD that the kernel knows: the parent of a parent domain, otherwise p.
func (p *PD) base() *PD {
	if p != nil && p.parent != nil {
		return p.parent
	}
	return p
}

// single reports whether only one goroutine at a time uses the queues of p.
func (p *PD) single() bool { return p != nil && p.td != nil }

// shared returns the part of p that providers compare: that of the kernel's PD.
func (p *PD) shared() *driver.PD {
	if p = p.base(); p == nil {
		return nil
	}
	return &p.driver
}

// memory returns the function that allocates memory for the rings of p's queues, or nil.
func (p *PD) memory() driver.Memory {
	if p == nil || p.give == nil {
		return nil
	}
	return p.ringMemory
}

// ringMemory calls the Alloc of the parent domain p for n bytes that begin at a page. It
// returns nil if Alloc leaves the allocation to the library, and [ErrInvalid] if Alloc returns
// less memory, or memory that does not begin at a page.
func (p *PD) ringMemory(op string, n int) (b []byte, free func([]byte), err error) {
	page := unix.Getpagesize()
	b, err = p.give(n, page)
	switch {
	case err != nil:
		return nil, nil, &Error{Op: op, Object: p.String(), Err: err,
			Detail: fmt.Sprintf("Alloc of the parent domain failed for %d bytes: %v", n, err)}
	case b == nil:
		return nil, nil, nil
	}
	if at := addressOf(b); len(b) < n || at%uint64(page) != 0 {
		p.regain(b)
		return nil, nil, invalid(op, p.String(), fmt.Sprintf("Alloc gave %d bytes at %#x: want %d or more, at a multiple of %d", len(b), at, n, page))
	}
	clear(b)
	return b, p.regain, nil
}
