package uverbs

import (
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A PD is a protection domain: memory and queues can be used together only within
// one PD. Its methods may be called from any number of goroutines.
type PD struct {
	object
	driver    driver.PD                          // unused in a parent domain
	parent    *PD                                // the kernel's PD, if this is a parent domain
	td        *TD                                // may be nil
	allocRing func(n, align int) ([]byte, error) // ParentDomainConfig.Alloc
	freeRing  func([]byte)                       // ParentDomainConfig.Free
}

// AllocPD allocates a protection domain: ibv_alloc_pd(3). It returns [ErrClosed]
// after Close of the Context.
func (c *Context) AllocPD() (*PD, error) {
	p := new(PD)
	p.object = object{ctx: c, life: p, kind: "PD", rank: rankPD}
	if err := p.createWith(p.alloc); err != nil {
		return nil, err
	}
	return p, nil
}

func (p *PD) alloc() error {
	reply, err := p.ctx.impl.AllocPD(func(uhwIn, uhwOut []byte) (driver.Reply, error) {
		return p.setHandle(p.command(uhwIn, uhwOut))
	})
	if err != nil {
		p.destroyIfExists(p.destroy)
		detail := ""
		if errors.Is(err, unix.ENOMEM) {
			detail = "the kernel has no memory for it, or the device no object left"
		}
		return p.ctx.wrap("allocate PD", p.ctx.name, err, detail)
	}
	p.handle, p.number, p.driver.Handle = reply.Handle, reply.Handle, reply.Handle
	return nil
}

func (p *PD) destroy() error {
	return p.destroyHandle(uapi.UVERBS_OBJECT_PD, uapi.UVERBS_METHOD_PD_DESTROY, uapi.UVERBS_ATTR_DESTROY_PD_HANDLE)
}

func (p *PD) command(uhwIn, uhwOut []byte) (driver.Reply, error) {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsAllocPdResp](cmd, uapi.IB_USER_VERBS_CMD_ALLOC_PD, &uapi.IbUverbsAllocPd{})
	reply := cmd.UHW(uhwIn, len(uhwOut))
	if err := p.ctx.dev.Do(cmd); err != nil {
		return driver.Reply{}, err
	}
	copy(uhwOut, reply)
	return driver.Reply{Handle: resp.PdHandle}, nil
}

// Context returns the context of p.
func (p *PD) Context() *Context { return p.ctx }

// base returns the PD that the kernel knows: the parent of a parent domain, otherwise p.
func (p *PD) base() *PD {
	if p != nil && p.parent != nil {
		return p.parent
	}
	return p
}

// single reports whether only one goroutine at a time uses the queues of p.
func (p *PD) single() bool { return p != nil && p.td != nil }

// shared returns the part of p that providers compare. It belongs to the kernel's PD.
func (p *PD) shared() *driver.PD {
	if p = p.base(); p == nil {
		return nil
	}
	return &p.driver
}

// memory returns the function that allocates memory for the rings of p's queues, or nil.
func (p *PD) memory() driver.Memory {
	if p == nil || p.allocRing == nil {
		return nil
	}
	return p.ringMemory
}

// ringMemory calls the Alloc of the parent domain p for n bytes that begin at a page. It
// returns nil if Alloc leaves the allocation to the library, and [ErrInvalid] if Alloc returns
// less memory, or memory that does not begin at a page.
func (p *PD) ringMemory(op string, n int) (b []byte, free func([]byte), err error) {
	page := unix.Getpagesize()
	b, err = p.allocRing(n, page)
	switch {
	case err != nil:
		return nil, nil, &Error{Op: op, Object: p.String(), Err: err,
			Detail: fmt.Sprintf("Alloc of the parent domain failed for %d bytes: %v", n, err)}
	case b == nil:
		return nil, nil, nil
	}
	if at := addressOf(b); len(b) < n || at%uint64(page) != 0 {
		p.freeRing(b)
		return nil, nil, invalid(op, p.String(),
			fmt.Sprintf("Alloc gave %d bytes at %#x: want %d or more, at a multiple of %d", len(b), at, n, page))
	}
	clear(b)
	return b, p.freeRing, nil
}

// Close deallocates the domain, which may be a parent domain: ibv_dealloc_pd(3). It
// returns [ErrBusy] while memory or queues of the domain are open. Close is
// idempotent.
func (p *PD) Close() error { return p.close() }
