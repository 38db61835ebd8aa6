package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// ReregFlags say what [MR.Rereg] changes. The values are those of
// ibv_rereg_mr_flags.
type ReregFlags uint32

// The bits of ibv_rereg_mr(3).
const (
	ReregTranslation ReregFlags = 1 << 0
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

const reregAll = ReregTranslation | ReregPD | ReregAccess

// Rereg changes the memory, the PD or the access of an MR, as flags say:
// ibv_rereg_mr(3). What flags do not name must be nil or 0. LKey and RKey may
// change, and with new memory Addr does: it is the address of b[0]. SGEs that
// were made before may name nothing any more.
//
// OnDemand belongs to the memory: it is given with new memory, and stays as it
// was without.
//
// New memory is pinned as by [PD.RegMR]. What was registered before is let go,
// but memory of [PD.Alloc] stays mapped until Close. Of access and PD together,
// the access is changed first, by a command of its own.
//
// [ErrNotSupported] where the device changes no registration, or not this part
// of it: rxe changes PD and access from Linux 6.12 on, and no memory.
// [ErrInvalid] for flags and values that do not fit each other. The MR is as it
// was after these two. After another error of the kernel's it may name nothing
// any more: close it. It then holds all memory and PDs of both registrations.
func (m *MR) Rereg(flags ReregFlags, pd *PD, b []byte, a Access) error {
	r := m.reg
	if err := r.checkRereg(flags, pd, b, a); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return &Error{Op: opRereg, Object: r.String(), Kind: ErrClosed}
	}
	err := r.rereg(flags, pd, b, a)
	m.view.Store(r.view) // a part may have been changed
	return err
}

const opRereg = "reregister"

func (r *registration) checkRereg(flags ReregFlags, pd *PD, b []byte, a Access) error {
	bad := func(detail string) error { return invalid(opRereg, r.String(), detail) }
	switch {
	case r.unregistered != "":
		return bad("it is " + r.unregistered + ": only what this Context has registered can be changed")
	case flags == 0 || flags&^reregAll != 0:
		return bad(fmt.Sprintf("the flags are %#x: want one or more of ReregTranslation, ReregPD and ReregAccess", uint32(flags)))
	case flags&ReregTranslation != 0 != (len(b) > 0):
		return bad("ReregTranslation and the memory go together")
	case flags&ReregPD != 0 != (pd != nil):
		return bad("ReregPD and the PD go together")
	case flags&ReregAccess == 0 && a != 0:
		return bad("access without ReregAccess")
	case pd != nil && pd.ctx != r.ctx:
		return bad(pd.String() + " belongs to another Context than the MR")
	}
	return nil
}

// rereg runs under r.mu. Access and PD are two commands: the rxe of Linux 6.12
// has changed half of what counts the users of a PD when it refuses the access,
// and loses both PDs over it.
func (r *registration) rereg(flags ReregFlags, pd *PD, b []byte, a Access) error {
	if a&OnDemand != 0 && !r.view.onDemand && flags&ReregTranslation == 0 {
		return invalid(opRereg, r.String(), "the memory is pinned, and access alone does not change that: leave OnDemand out, or register the memory afresh with it")
	}
	if flags != ReregPD|ReregAccess {
		return r.change(flags, pd, b, a)
	}
	if err := r.change(ReregAccess, nil, nil, a); err != nil {
		return err
	}
	return r.change(ReregPD, pd, nil, 0)
}

func (r *registration) change(flags ReregFlags, pd *PD, b []byte, a Access) error {
	if pd != nil {
		if err := pd.hold(); err != nil {
			return &Error{Op: opRereg, Object: r.String(), Kind: err, Detail: "the PD has been closed"}
		}
	}
	var g *ground
	if len(b) > 0 {
		g = new(ground)
		g.keep(b)
	}
	next := *r.view
	if err := r.reregCommand(flags, pd, b, a, &next); err != nil {
		return r.reregFailed(flags, pd, b, a, g, err)
	}
	if flags&ReregAccess != 0 {
		next.access = a
	}
	if g != nil {
		next.buf, next.addr, next.size, next.room = b, addressOf(b), len(b), int64(len(b))
		next.whole, next.foreign = false, false
		next.onDemand = next.access&OnDemand != 0
	}
	r.view = &next
	r.ctx.memory.follow(r) // until here what arrived belongs into the old memory
	if g != nil {
		r.replaceGround(g)
	}
	if pd != nil {
		old := r.parents // more than one after a failure
		r.setParents(&pd.object)
		dropAll(old)
		r.pd = pd
	}
	return nil
}

func (r *registration) reregCommand(flags ReregFlags, pd *PD, b []byte, a Access, next *mrView) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	req := uapi.IbUverbsReregMr{MrHandle: r.handle, Flags: uint32(flags), AccessFlags: r.ctx.taken(a)}
	if pd != nil {
		req.PdHandle = pd.handle
	}
	if len(b) > 0 {
		req.Start, req.Length, req.HcaVa = addressOf(b), uint64(len(b)), addressOf(b)
	}
	resp := ioctl.Write[uapi.IbUverbsReregMrResp](cmd, uapi.IB_USER_VERBS_CMD_REREG_MR, &req)
	if err := r.ctx.dev.Do(cmd); err != nil {
		return err
	}
	next.lkey, next.rkey = resp.Lkey, resp.Rkey
	return nil
}

// reregFailed keeps what the device may still use. A driver that changes more
// than one thing may have changed the first.
func (r *registration) reregFailed(flags ReregFlags, pd *PD, b []byte, a Access, g *ground, err error) error {
	switch {
	case g == nil:
	case flags == ReregTranslation && notSupported(err):
		g.pin.Unpin()
	default:
		r.grounds = append(r.grounds, g)
	}
	if pd != nil {
		if flags == ReregPD {
			pd.drop()
		} else {
			r.setParents(append(r.parents, &pd.object)...)
		}
	}
	return r.explainRereg(flags, b, a, err)
}

// replaceGround lets the caller's memory go, and keeps what Alloc mapped: the
// program may have slices of it.
func (r *registration) replaceGround(g *ground) {
	kept := []*ground{g}
	for _, old := range r.grounds {
		if old.own {
			kept = append(kept, old)
			continue
		}
		old.pin.Unpin()
	}
	r.grounds = kept
}

// setParents changes what usedBy reads of its children.
func (r *registration) setParents(parents ...*object) {
	r.ctx.mu.Lock()
	defer r.ctx.mu.Unlock()
	r.parents = append([]*object(nil), parents...)
}

func (r *registration) explainRereg(flags ReregFlags, b []byte, a Access, err error) error {
	switch e := r.ctx.wrap(opRereg, r.String(), err, "").(*Error); {
	case flags&ReregAccess != 0 && flags&ReregTranslation == 0:
		return r.explainReregAccess(a, e)
	case e.Kind == ErrNotSupported && flags&ReregTranslation != 0:
		e.Detail = "this device or kernel does not change the memory of an MR: close it and register the other"
		return e
	case e.Kind == ErrNotSupported:
		e.Detail = noRereg
		return e
	case flags&ReregTranslation != 0:
		return r.ctx.explainRegMR(opRereg, r.String(), b, addressOf(b), a, err)
	default:
		return e
	}
}

// explainReregAccess says why another access to the same memory was refused.
func (r *registration) explainReregAccess(a Access, e *Error) error {
	lacks := ""
	if e.Kind == ErrNotSupported || e.Kind == ErrInvalid {
		lacks = r.ctx.lacksAccess(a)
	}
	switch {
	case lacks != "":
		e.Kind, e.Detail = ErrNotSupported, lacks
	case e.Kind == ErrNotSupported:
		e.Detail = noRereg
	case e.Errno == unix.EACCES:
		e.Detail = "the memory is pinned to be read only, as it was registered without LocalWrite: close it and register it afresh with LocalWrite"
	case e.Kind == ErrInvalid && needsLocalWrite(a):
		e.Detail = localWriteText
	case e.Kind == ErrInvalid:
		e.Detail = fmt.Sprintf("the device does not take access %v", a)
	}
	return e
}

const noRereg = "this device or kernel does not change an MR so: close it and register it afresh"
