package uverbs

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
	n := &PD{parent: base, td: d, allocRing: cfg.Alloc, freeRing: cfg.Free}
	n.object = object{ctx: p.ctx, life: n, kind: "parent domain", rank: rankParent, external: true}
	n.addParents(&base.object)
	if (cfg.Alloc == nil) != (cfg.Free == nil) {
		return nil, invalid(op, p.String(), "Alloc and Free must both be set, or neither")
	}
	if d != nil {
		if d.ctx != p.ctx {
			return nil, invalid(op, p.String(), d.String()+" belongs to another Context than the PD")
		}
		n.addParents(&d.object)
	}
	err := n.createWith(func() error {
		n.handle, n.number = base.handle, base.handle
		return nil
	})
	if err != nil {
		return nil, err
	}
	return n, nil
}
