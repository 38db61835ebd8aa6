package uverbs

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/leak"
)

// An MR is registered memory: the device may read and, as its Access says,
// write it. Its methods may be called from any number of goroutines; who may
// touch its bytes is between the program and its peers.
//
// The memory stays where it is until Close has returned. An MR that is dropped
// without Close stays registered until its Context is closed: with
// GOVERBS_LEAKS=1 in the environment it is reported.
type MR struct {
	reg  *registration
	view atomic.Pointer[mrView]
}

// An mrView is what an MR is at the moment: Rereg and Close put another one in
// its place.
type mrView struct {
	buf        []byte // nil where the memory is not the process's, or all of it
	whole      bool   // it is all of it
	foreign    bool   // it is not the process's, or not for the CPU to write
	addr       uint64 // by which work requests name the first byte
	size       int
	room       int64 // size, or closedRoom
	access     Access
	onDemand   bool // as the memory was registered, whatever access says since
	lkey, rkey uint32
}

// closedRoom is a size that no range fits, not even an empty one.
const closedRoom = -1

// RegMR registers the caller's bytes: ibv_reg_mr(3). They stay pinned, and may
// be on the Go heap; do not append beyond them.
//
// [ErrMemlock] says that the limit on locked memory is too low,
// [ErrNotSupported] that the device does not have one of the rights, such as
// OnDemand. [ErrInvalid] for no bytes, and for rights that do not go together.
func (p *PD) RegMR(b []byte, a Access) (*MR, error) {
	return p.regBytes(b, addressOf(b), a)
}

// RegMRIOVA is [PD.RegMR] with another address for the first byte, by which
// work requests of this process and of peers name it: ibv_reg_mr_iova(3). At 0
// the addresses are offsets. iova and the address of b[0] must lie at the same
// offset in their pages, as those of [PD.Alloc] and multiples of the page size
// do.
//
// rxe of Linux 7.2 does not take another address together with OnDemand.
// [ErrInvalid] for another offset; else the errors are those of [PD.RegMR].
func (p *PD) RegMRIOVA(b []byte, iova uint64, a Access) (*MR, error) {
	return p.regBytes(b, iova, a)
}

func (p *PD) regBytes(b []byte, iova uint64, a Access) (*MR, error) {
	if len(b) == 0 {
		return nil, invalid(opRegister, p.String(), "the memory is empty")
	}
	if iova+uint64(len(b)) < iova {
		return nil, invalid(opRegister, p.String(), fmt.Sprintf("%d bytes from address %#x on go beyond 64 bits", len(b), iova))
	}
	r := newRegistration(p)
	g := r.on()
	g.keep(b)
	m, err := r.register(func(r *registration) error { return r.reg(p, b, iova, a) })
	if err != nil {
		return nil, errors.Join(err, g.release(false))
	}
	return m, nil
}

// RegImplicit registers all memory that the process has and will have, without
// pinning any: implicit on-demand paging, see ibv_reg_mr(3). The offset of a
// range is its address. a must include OnDemand. [ErrNotSupported] where the
// device does not have it: [ODPImplicit]. [ErrInvalid] without OnDemand.
func (p *PD) RegImplicit(a Access) (*MR, error) {
	return newRegistration(p).register(func(r *registration) error { return r.regAll(p, a) })
}

// Alloc maps n zero bytes outside the Go heap and registers them. From 2 MiB
// on they ask for huge pages. After Close the bytes fault when touched, rather
// than be another buffer's, until the MR is unreachable. [ErrInvalid] for n
// below 1; else the errors are those of [PD.RegMR].
func (p *PD) Alloc(n int, a Access) (*MR, error) {
	if n <= 0 {
		return nil, invalid("allocate memory", p.String(), "the size must be positive: "+strconv.Itoa(n))
	}
	buf, err := mapPages(n)
	if err != nil {
		return nil, p.ctx.wrap("allocate memory", p.String(), err, fmt.Sprintf("the system has no %d bytes", n))
	}
	r := newRegistration(p)
	*r.on() = ground{buf: buf, own: true}
	m, err := r.register(func(r *registration) error { return r.reg(p, buf, addressOf(buf), a) })
	if err != nil {
		return nil, errors.Join(err, unmapPages(buf))
	}
	runtime.AddCleanup(m, (*registration).unreachable, r)
	return m, nil
}

// register makes the MR by the command that reg issues.
func (r *registration) register(reg func(*registration) error) (*MR, error) {
	err := r.make(func() error {
		err := reg(r)
		if err == nil {
			r.ctx.memory.enter(r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	m := &MR{reg: r}
	m.view.Store(r.view)
	if leak.Enabled() {
		runtime.AddCleanup(m, reportDropped, r)
	}
	return m, nil
}

// Bytes returns the memory; nil for memory that the process does not have
// mapped by the MR. The bytes of an MR of [PD.Alloc] are not to be touched
// after Close: they fault.
func (m *MR) Bytes() []byte { return m.view.Load().buf }

// Addr is the address of the first byte: what peers name in WRITE and READ.
func (m *MR) Addr() uint64 { return m.view.Load().addr }

// Len is the size in bytes.
func (m *MR) Len() int { return m.view.Load().size }

// LKey names the memory in an SGE of this process.
func (m *MR) LKey() uint32 { return m.view.Load().lkey }

// RKey names the memory to peers.
func (m *MR) RKey() uint32 { return m.view.Load().rkey }

// PD returns the domain that the memory belongs to.
func (m *MR) PD() *PD {
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	return m.reg.pd
}

// Context returns the context that m was made from.
func (m *MR) Context() *Context { return m.reg.ctx }

// badLength marks an SGE that every post refuses.
const badLength = ^uint32(0)

// SGE names n bytes from offset off. A range outside the MR, a closed or a nil
// MR yields an SGE that every post refuses with [ErrRange].
func (m *MR) SGE(off, n int) SGE {
	if m == nil || off < 0 || n < 0 || n > MaxMessage {
		return SGE{Length: badLength}
	}
	v := m.view.Load()
	if int64(off) > v.room-int64(n) {
		return SGE{Length: badLength}
	}
	return SGE{Addr: v.addr + uint64(off), Length: uint32(n), LKey: v.lkey}
}

// Close deregisters the memory: ibv_dereg_mr(3). Work requests in flight that
// use it complete with a protection error. [ErrBusy] while a memory window is
// bound to it. It is idempotent. Else the error is what the kernel says when it
// refuses; the MR stays registered then.
func (m *MR) Close() error {
	open := m.view.Load()
	shut := open.shut()
	m.view.Store(shut) // no new range from now on
	err := m.reg.close()
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	v := m.reg.view // which a Rereg may have changed under way
	switch {
	case m.reg.closed && v == open:
		v = shut
	case m.reg.closed:
		v = v.shut()
	}
	m.view.Store(v)
	return err
}

func (v *mrView) shut() *mrView {
	w := *v
	w.room = closedRoom
	return &w
}

// maxRoom is how much of its memory an MR of the whole process can name.
const maxRoom = math.MaxInt64
