package uverbs

import "github.com/goverbs/goverbs/internal/driver"

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
	d.object = object{ctx: c, life: d, kind: "TD", rank: rankTD}
	if err := d.createWith(d.alloc); err != nil {
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

func (d *TD) retire() error { return d.impl.Retire() }

// Context returns the context that d was allocated on.
func (d *TD) Context() *Context { return d.ctx }

// Close releases the domain's registers: ibv_dealloc_td(3). It returns [ErrBusy] while a parent
// domain refers to the thread domain. It is idempotent.
func (d *TD) Close() error { return d.close() }
