package uverbs

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A registration is the part of an MR that lives until Close, even if the MR
// becomes unreachable. It does not point to the MR.
type registration struct {
	object
	pd       atomic.Pointer[PD]
	view     *mrView
	entry    *driver.MREntry // entry in Context.memory
	backings []*backing
	// unregistered says what the MR is if this context has not registered it.
	unregistered string
	orphan       bool // the MR is unreachable: the program can no longer access the memory

	// The initial values, which most registrations keep.
	first struct {
		view     mrView
		closed   mrView // view.closed(), set when the MR is registered
		backing  backing
		backings [1]*backing
	}
}

// An mrView describes the current state of an MR. Rereg and Close replace it.
type mrView struct {
	buf        []byte // nil if the memory is not the process's, or is its whole address space
	addr       uint64 // of the first byte, in work requests
	size       int
	room       int64 // size, or closedRoom
	lkey, rkey uint32
	access     Access
	whole      bool // the MR is the whole address space
	foreign    bool // the memory is not the process's, or the CPU must not write it
	onDemand   bool // set when the memory was registered; a later change of access does not change it
}

// region returns what queues may access.
func (v *mrView) region() driver.Region {
	return driver.Region{Buf: v.buf, Addr: v.addr, LKey: v.lkey, Whole: v.whole, Foreign: v.foreign,
		Writable: v.access&LocalWrite != 0, OnDemand: v.onDemand}
}

// closedRoom is a size in which no range fits, not even an empty one.
const closedRoom = -1

func (v *mrView) closed() *mrView {
	w := *v
	w.room = closedRoom
	return &w
}

// closedView returns v.closed(). For the initial view it allocates nothing.
func (r *registration) closedView(v *mrView) *mrView {
	if v == &r.first.view {
		return &r.first.closed
	}
	return v.closed()
}

// maxRoom is the size of an MR of the whole address space.
const maxRoom = math.MaxInt64

// A backing is memory that a device may access.
type backing struct {
	buf []byte
	pin runtime.Pinner

	own    bool // buf was mapped by Alloc
	reused bool // buf is of takeSpare
	freed  bool // the program does not use it any more: see freeReused
}

// keep pins the caller's bytes.
func (mem *backing) keep(b []byte) {
	mem.buf = b
	mem.pin.Pin(&b[0])
}

// release releases the memory after the kernel has deregistered it. orphan means
// that the program can no longer access it.
func (mem *backing) release(orphan bool) error {
	switch {
	case mem.reused:
		if mem.freed || orphan {
			putSpare(mem.buf)
		}
		return nil
	case !mem.own:
		mem.pin.Unpin()
		return nil
	case orphan:
		return unmapPages(mem.buf)
	}
	return forbidPages(mem.buf)
}

// freeReused is verbs.FreeReused.
func (r *registration) freeReused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	mem := r.backings[0]
	if !mem.reused || mem.freed {
		return
	}
	mem.freed = true
	if r.closed && !r.kept {
		putSpare(mem.buf)
	}
}

func newRegistration(p *PD) *registration {
	r := new(registration)
	r.pd.Store(p)
	r.object = object{ctx: p.ctx, life: r, kind: "MR", rank: rankMR}
	r.addParents(&p.object)
	return r
}

// firstBacking returns the first backing of r.
func (r *registration) firstBacking() *backing {
	mem := &r.first.backing
	r.first.backings[0] = mem
	r.backings = r.first.backings[:]
	return mem
}

// accessFlags returns the access flags for the kernel. It removes the optional ones if
// the kernel does not know them.
func (c *Context) accessFlags(a Access) uint32 {
	if c.coreSupport&uapi.IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS == 0 {
		a &^= optionalAccess
	}
	return uint32(a)
}

func (r *registration) reg(p *PD, b []byte, iova uint64, a Access) error {
	r.view = &r.first.view
	*r.view = mrView{buf: b, addr: iova, size: len(b), room: int64(len(b)), access: a, onDemand: a&OnDemand != 0}
	if err := r.command(p, addressOf(b), uint64(len(b)), iova, a); err != nil {
		return p.ctx.explainRegMR(opRegister, p.String(), b, iova, a, err)
	}
	r.first.closed = *r.view
	r.first.closed.room = closedRoom
	return nil
}

// regAll registers the whole address space, which the ABI expresses as these
// arguments.
func (r *registration) regAll(p *PD, a Access) error {
	r.view = &mrView{whole: true, size: maxRoom, room: maxRoom, access: a, onDemand: a&OnDemand != 0}
	r.view.foreign = p.ctx.memory != nil && !driver.StoresAnywhere()
	if err := r.command(p, 0, ^uint64(0), 0, a); err != nil {
		return p.explainImplicit(a, err)
	}
	return nil
}

func (r *registration) command(p *PD, start, length, iova uint64, a Access) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	resp := ioctl.Write[uapi.IbUverbsRegMrResp](cmd, uapi.IB_USER_VERBS_CMD_REG_MR, &uapi.IbUverbsRegMr{
		Start: start, Length: length, HcaVa: iova, PdHandle: p.handle, AccessFlags: r.ctx.accessFlags(a)})
	if p, ok := r.ctx.impl.(driver.MRExtender); ok {
		cmd.UHW(p.RegMRParts())
	}
	if err := r.ctx.dev.Do(cmd); err != nil {
		return err
	}
	r.handle, r.number = resp.MrHandle, resp.MrHandle
	r.view.lkey, r.view.rkey = resp.Lkey, resp.Rkey
	return nil
}

func (r *registration) destroy() error {
	err := r.destroyHandle(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_MR_DESTROY, uapi.UVERBS_ATTR_DESTROY_MR_HANDLE)
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) && (e.Errno == unix.EINVAL || e.Errno == unix.EBUSY) {
		e.Kind, e.Detail = ErrBusy, "a memory window is bound to it: close the window, or invalidate it, first"
	}
	return err
}

// retire releases all memory after the kernel has deregistered it.
func (r *registration) retire() error {
	r.ctx.memory.Remove(r.entry)
	if r.kept {
		return nil
	}
	var all error
	for _, mem := range r.backings {
		if err := mem.release(r.orphan); err != nil {
			all = errors.Join(all, err)
		}
	}
	return all
}

// unreachable is called when the MR is unreachable. Then the address range may be
// reused as soon as the kernel has deregistered it.
func (r *registration) unreachable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.orphan = true
	if !r.closed || r.kept {
		return
	}
	for _, mem := range r.backings {
		if mem.own {
			// Unmapping memory that this process has mapped cannot fail, and there is no
			// caller to report an error to.
			_ = unmapPages(mem.buf)
		}
	}
}

func reportDropped(r *registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		fmt.Fprintf(os.Stderr, "uverbs: MR of %d bytes dropped without Close; "+
			"its memory stays registered until its Context is closed\n%v\n", r.view.size, r.ticket)
	}
}
