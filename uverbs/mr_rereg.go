package uverbs

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// ReregFlags select what [MR.Rereg] changes. The values are those of
// ibv_rereg_mr_flags.
type ReregFlags uint32

// The bits of ibv_rereg_mr(3).
const (
	ReregTranslation ReregFlags = 1 << 0
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

const reregAll = ReregTranslation | ReregPD | ReregAccess

// Rereg changes the memory, the PD or the access of an MR, as selected by flags:
// ibv_rereg_mr(3). Arguments that flags do not select must be nil or 0. LKey and
// RKey may change. With new memory, Addr changes to the address of b[0]. SGEs
// created before may be invalid afterwards.
//
// OnDemand is a property of the memory. It is set or cleared only together with new
// memory.
//
// New memory is pinned as by [PD.RegMR]. The old memory is unpinned, but memory of
// [PD.Alloc] stays mapped until Close. If access and PD are both changed but the
// memory is not, the access is changed first, with a separate command.
//
// Rereg returns [ErrNotSupported] if the device cannot change MRs, or cannot make
// this change: rxe can change PD and access since Linux 6.12, but not the memory.
// It returns [ErrInvalid] if flags and values do not fit together. After these two
// errors the MR is unchanged. After another error of the kernel it may be unusable:
// close it. Until then it holds the memory and the PDs of both registrations.
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
	m.view.Store(r.view) // a part may have been changed even if there is an error
	return err
}

const opRereg = "reregister"

func (r *registration) checkRereg(flags ReregFlags, pd *PD, b []byte, a Access) error {
	bad := func(detail string) error { return invalid(opRereg, r.String(), detail) }
	switch {
	case r.unregistered != "":
		return bad("it is " + r.unregistered + ": only what this Context has registered can be changed")
	case flags == 0 || flags&^reregAll != 0:
		return bad(fmt.Sprintf("the flags are %#x: want one or more of ReregTranslation, ReregPD and ReregAccess",
			uint32(flags)))
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

// rereg changes the MR. The caller holds r.mu. Access and PD need two commands:
// rxe of Linux 6.12 has already changed half of the PDs' reference counts when it
// refuses the access. The counts of both PDs are wrong from then on.
func (r *registration) rereg(flags ReregFlags, pd *PD, b []byte, a Access) error {
	if a&OnDemand != 0 && !r.view.onDemand && flags&ReregTranslation == 0 {
		return invalid(opRereg, r.String(), "the memory is pinned, and access alone does not change that: leave OnDemand "+
			"out, or register the memory again with it")
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
	var mem *backing
	if len(b) > 0 {
		mem = new(backing)
		mem.keep(b)
	}
	next := *r.view
	if err := r.reregCommand(flags, pd, b, a, &next); err != nil {
		return r.reregFailed(flags, pd, b, a, mem, err)
	}
	if flags&ReregAccess != 0 {
		next.access = a
	}
	if mem != nil {
		next.buf, next.addr, next.size, next.room = b, addressOf(b), len(b), int64(len(b))
		next.whole, next.foreign = false, false
		next.onDemand = next.access&OnDemand != 0
	}
	r.view = &next
	// Until now, data that arrived belonged in the old memory.
	r.entry = r.ctx.memory.Replace(r.entry, next.region())
	if mem != nil {
		r.replaceBacking(mem)
	}
	if pd != nil {
		old := r.parents // more than one after a failure
		r.setParents(&pd.object)
		dropAll(old)
		r.pd.Store(pd)
	}
	return nil
}

func (r *registration) reregCommand(flags ReregFlags, pd *PD, b []byte, a Access, next *mrView) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	req := uapi.IbUverbsReregMr{MrHandle: r.handle, Flags: uint32(flags), AccessFlags: r.ctx.accessFlags(a)}
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

// reregFailed keeps everything that the device may still use. If the driver had to
// change more than one thing, it may have changed the first.
func (r *registration) reregFailed(flags ReregFlags, pd *PD, b []byte, a Access, mem *backing, err error) error {
	switch {
	case mem == nil:
	case flags == ReregTranslation && notSupported(err):
		mem.pin.Unpin()
	default:
		r.backings = append(r.backings, mem)
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

// replaceBacking unpins the caller's old memory. It keeps memory that Alloc mapped,
// because the program may have slices of it.
func (r *registration) replaceBacking(mem *backing) {
	kept := []*backing{mem}
	for _, old := range r.backings {
		if old.own {
			kept = append(kept, old)
			continue
		}
		old.pin.Unpin()
	}
	r.backings = kept
}

// setParents replaces the parents, under the lock that usedBy reads them with.
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

// explainReregAccess explains why the kernel refused to change the access.
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
		e.Detail = "the memory is pinned to be read only, as it was registered without LocalWrite: close it and register " +
			"it again with LocalWrite"
	case e.Kind == ErrInvalid && needsLocalWrite(a):
		e.Detail = localWriteText
	case e.Kind == ErrInvalid:
		e.Detail = fmt.Sprintf("the device does not accept access %v", a)
	}
	return e
}

const noRereg = "this device or kernel does not support this change of an MR: close it and register the memory again"
