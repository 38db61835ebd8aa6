package uverbs

import (
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/leak"
)

// An MR is a memory region. The device may read its memory and, depending on its
// Access, write it. The methods of an MR may be called from any number of
// goroutines. They do not synchronize access to the memory itself: that is up to
// the program and its peers.
//
// The memory does not move until Close returns. If an MR becomes unreachable
// without Close, it stays registered until its Context is closed. Set
// GOVERBS_LEAKS=1 in the environment to have such MRs reported.
type MR struct {
	reg  *registration
	view atomic.Pointer[mrView]
}

// RegMR registers b: ibv_reg_mr(3). The memory is pinned and may be on the Go heap.
// Do not append to b: the bytes beyond it are not registered.
//
// RegMR returns [ErrMemlock] if the limit on locked memory is too low,
// [ErrNotSupported] if the device does not support one of the access flags, such as
// OnDemand, and [ErrInvalid] if b is empty or the access flags contradict each
// other.
func (p *PD) RegMR(b []byte, a Access) (*MR, error) {
	return p.regBytes(b, addressOf(b), a)
}

// RegMRIOVA is like [PD.RegMR], but work requests of this process and of peers use
// iova as the address of the first byte: ibv_reg_mr_iova(3). With iova 0 the
// addresses are offsets. iova and the address of b[0] must have the same offset in
// their pages. Memory of [PD.Alloc] and an iova that is a multiple of the page size
// satisfy this.
//
// rxe of Linux 7.2 does not support another address together with OnDemand.
// RegMRIOVA returns [ErrInvalid] if the offsets differ; otherwise the errors are
// those of [PD.RegMR].
func (p *PD) RegMRIOVA(b []byte, iova uint64, a Access) (*MR, error) {
	return p.regBytes(b, iova, a)
}

func (p *PD) regBytes(b []byte, iova uint64, a Access) (*MR, error) {
	if len(b) == 0 {
		return nil, invalid(opRegister, p.String(), "the memory is empty")
	}
	if iova+uint64(len(b)) < iova {
		return nil, invalid(opRegister, p.String(),
			fmt.Sprintf("%d bytes from address %#x on go beyond 64 bits", len(b), iova))
	}
	r := newRegistration(p)
	mem := r.firstBacking()
	mem.keep(b)
	m, err := r.register(func(r *registration) error { return r.reg(p, b, iova, a) })
	if err != nil {
		return nil, errors.Join(err, mem.release(false))
	}
	return m, nil
}

// RegImplicit registers the whole address space of the process, without pinning any
// memory: implicit on-demand paging, see ibv_reg_mr(3). It includes memory that is
// mapped later. The offset of a range is its address. a must include OnDemand.
//
// RegImplicit returns [ErrNotSupported] if the device does not have [ODPImplicit],
// and [ErrInvalid] without OnDemand.
func (p *PD) RegImplicit(a Access) (*MR, error) {
	return newRegistration(p).register(func(r *registration) error { return r.regAll(p, a) })
}

// Alloc allocates n zero bytes outside the Go heap and registers them. For 2 MiB
// and more it requests huge pages. After Close, an access to the bytes faults: the
// address range is not reused until the MR is unreachable. In a program built with
// the race detector, the bytes are on the Go heap, because the detector knows only
// that memory. Alloc returns [ErrInvalid] if n is less than 1; otherwise the errors
// are those of [PD.RegMR].
func (p *PD) Alloc(n int, a Access) (*MR, error) {
	m, err := p.allocBy((*backing).alloc, n, a)
	if err == nil {
		runtime.AddCleanup(m, (*registration).unreachable, m.reg)
	}
	return m, err
}

// allocBy registers n bytes that alloc allocates.
func (p *PD) allocBy(alloc func(*backing, int) error, n int, a Access) (*MR, error) {
	if n <= 0 {
		return nil, invalid("allocate memory", p.String(), "the size must be positive: "+strconv.Itoa(n))
	}
	r := newRegistration(p)
	mem := r.firstBacking()
	if err := alloc(mem, n); err != nil {
		return nil, p.ctx.wrap("allocate memory", p.String(), err, fmt.Sprintf("the system has no %d bytes", n))
	}
	b := mem.buf[:n:n]
	m, err := r.register(func(r *registration) error { return r.reg(p, b, addressOf(b), a) })
	if err != nil {
		return nil, errors.Join(err, mem.release(true))
	}
	return m, nil
}

// register creates the MR with the command that reg issues.
func (r *registration) register(reg func(*registration) error) (*MR, error) {
	err := r.createWith(func() error {
		err := reg(r)
		if err == nil {
			r.entry = r.ctx.memory.Add(r.view.region())
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

// Bytes returns the memory, or nil if the MR does not map it in this process. The
// bytes of an MR of [PD.Alloc] must not be accessed after Close: that faults.
func (m *MR) Bytes() []byte { return m.view.Load().buf }

// Addr returns the address of the first byte. Peers use it in WRITE and READ
// requests.
func (m *MR) Addr() uint64 { return m.view.Load().addr }

// Len returns the size in bytes.
func (m *MR) Len() int { return m.view.Load().size }

// LKey returns the local key, for SGEs of this process.
func (m *MR) LKey() uint32 { return m.view.Load().lkey }

// RKey returns the remote key, for requests of peers.
func (m *MR) RKey() uint32 { return m.view.Load().rkey }

// PD returns the PD of the region.
func (m *MR) PD() *PD { return m.reg.pd.Load() }

// Context returns the context of m.
func (m *MR) Context() *Context { return m.reg.ctx }

// badLength is the length of an SGE that every post refuses.
const badLength = ^uint32(0)

// SGE returns an SGE of n bytes at offset off. If the range is outside the MR, or
// the MR is closed or nil, every post refuses the SGE with [ErrRange].
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

// Close deregisters the memory: ibv_dereg_mr(3). Posted work requests that use it
// complete with a protection error. Close is idempotent. It returns [ErrBusy] while
// a memory window is bound to the MR. If the kernel refuses, Close returns its error
// and the MR stays registered.
func (m *MR) Close() error {
	open := m.view.Load()
	closed := m.reg.closedView(open)
	m.view.Store(closed) // SGE accepts no range from now on
	err := m.reg.close()
	m.reg.mu.Lock()
	defer m.reg.mu.Unlock()
	v := m.reg.view // a concurrent Rereg may have changed it
	switch {
	case m.reg.closed && v == open:
		v = closed
	case m.reg.closed:
		v = m.reg.closedView(v)
	}
	m.view.Store(v)
	return err
}
