package uverbs

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

// AllocParentDomain makes a domain with the memory and the rights of p, whose
// queues are of a thread domain: ibv_alloc_parent_domain(3). All that takes a PD
// takes it; QPs, SRQs, MRs, MWs and AHs of the two go together. QPs and SRQs that
// are made by it are SingleGoroutine, CQs are that name it in CQConfig, and all of
// them belong to one goroutine at a time together. With a nil d it is p by another
// name. [ErrInvalid] for a TD of another Context, [ErrClosed] after Close of p or
// d.
func (p *PD) AllocParentDomain(d *TD) (*PD, error) {
	base := p.base()
	n := &PD{parent: base, td: d}
	n.object = object{ctx: p.ctx, kind: "parent domain", rank: rankParent, parents: []*object{&base.object},
		destroy: func() error { return nil }}
	if d != nil {
		if d.ctx != p.ctx {
			return nil, invalid("allocate parent domain", p.String(), d.String()+" belongs to another Context than the PD")
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
