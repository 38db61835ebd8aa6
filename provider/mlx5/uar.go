package mlx5

import (
	"encoding/binary"
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
)

// The layout of a register page (UAR). It has 4 KiB whatever the page size of the CPU. If the
// CPU's pages are larger, one of them holds several register pages.
const (
	uarSize      = 4096
	uarArm       = 0x20  // CQ doorbell
	uarSend      = 0x800 // registers for sends
	uarUsable    = 2     // usable registers; two more serve other purposes
	uarRegisters = 4
)

// A register is a doorbell register for send requests.
type register struct {
	reg    *uint64
	mem    *provider.Mapping // the mapping that contains the register
	uar    uint32            // the device's number of its page
	at     int               // offset in mem
	bell   ioctl.Doorbells   // is notified of stores; nil with a real device
	toggle uint64            // half its size; 0 if it accepts only 8 bytes at a time
	most   uint64            // largest burst in blocks

	half uint64 // the half to write next

	// For registers that several QPs use.
	shared bool
	domain bool // the QPs belong to one thread domain, so no lock is needed
	mu     sync.Mutex
	users  int
}

// ring calls mmio.Ring on a register that several QPs use, or whose stores must be reported.
func (r *register) ring(d *mmio.Doorbell, count uint32, wqe *[64]byte, blocks uint64) {
	if !r.domain {
		r.mu.Lock()
	}
	half := r.half
	d.Half = half
	mmio.Ring(d, count, wqe, blocks)
	r.half = d.Half
	if r.bell != nil {
		r.report(uint32(half), int(blocks))
	}
	if !r.domain {
		r.mu.Unlock()
	}
}

// report reports what has been stored to half of the register.
func (r *register) report(half uint32, blocks int) {
	const word = 8
	n := max(blocks*blockSize, word)
	r.bell.Doorbell(r.uar, uint32(r.at%uarSize)+half, r.mem.Bytes()[r.at+int(half):][:n])
}

// A uarPage is a mapping of registers and the kernel object it belongs to.
type uarPage struct {
	mem    *provider.Mapping
	id     uint32 // the device's number of the page
	handle uint32
	object bool
}

// uars are the register pages of a context.
type uars struct {
	dev   *ioctl.Device
	set   settings
	split int // half the size of a register in bytes; 0 if the registers do not accept bursts
	per   int // register pages per CPU page

	base  *uarPage // for arming CQs, and for QPs if no better register is available
	plain *register
	arm   *uint64
	bell  ioctl.Doorbells // see register

	mu      sync.Mutex
	pages   []*uarPage
	free    []*register // registers that no queue uses
	shared  []*register
	spare   []*register // free registers of closed thread domains
	owners  int         // number of burst registers allocated for one owner each
	sharers int         // number of burst registers allocated for sharing
	fixed   []*register
}

// open allocates the page that every context needs. registers is the number of registers that an
// old kernel has allocated with the context, or 0.
func (u *uars) open(registers int) error {
	if registers > 0 {
		return u.openFixed(registers)
	}
	p, err := u.alloc(uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
	if err != nil {
		return kernelError("allocate a register page", u.dev.Name(), err,
			"the device has none left, or a policy forbids it")
	}
	u.use(p)
	u.plain = u.register(p.mem, uarSend, p.id)
	return nil
}

func (u *uars) use(p *uarPage) {
	u.base = p
	u.arm = registerOf(p.mem.Bytes()[uarArm:])
}

// alloc allocates a page and maps it.
func (u *uars) alloc(kind uint64) (*uarPage, error) {
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_ALLOC)
	c.NewHandle(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
	c.Uint64(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, kind)
	offset := ioctl.OutOf[uint64](c, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET)
	length := ioctl.OutOf[uint32](c, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH)
	id := ioctl.OutOf[uint32](c, uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID)
	if err := u.dev.Do(c); err != nil {
		return nil, err
	}
	p := &uarPage{id: *id, handle: c.Made(uapi.MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE), object: true}
	if int(*length) < uarSize*u.per {
		return nil, provider.Join(errShortPage, u.destroy(p))
	}
	mem, err := provider.Map(u.dev, int64(*offset), int(*length))
	if err != nil {
		return nil, provider.Join(err, u.destroy(p))
	}
	p.mem = mem
	u.pages = append(u.pages, p)
	return p, nil
}

func (u *uars) destroy(p *uarPage) error {
	if !p.object {
		return nil
	}
	err := u.dev.Destroy(uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY,
		uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, p.handle)
	if errors.Is(err, unix.EIO) { // the device was removed, and its pages with it
		return nil
	}
	return err
}

// A spot is the place of a register in a mapping.
type spot struct {
	offset int
	page   uint32 // index of the register page in the mapping
}

// spots returns the places of the first n registers of each of the per register pages in a
// mapping. A register has size bytes.
func spots(per, n, size int) []spot {
	var all []spot
	for page := range per {
		for i := range n {
			all = append(all, spot{page*uarSize + uarSend + i*size, uint32(page)})
		}
	}
	return all
}

// get returns a register for a QP, and put returns it. A page may have more registers than its
// kind still needs, and all of them are used. With large CPU pages, the first page of shared
// registers is allocated all the same.
func (u *uars) get() *register {
	if u.split == 0 || u.fixed != nil {
		return u.plain
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.free) == 0 && u.owners < u.set.exclusive {
		u.more(false)
	}
	if last := len(u.free) - 1; last >= 0 {
		r := u.free[last]
		u.free = u.free[:last]
		return r
	}
	if u.sharers < u.set.registers-u.set.exclusive {
		u.more(true)
	}
	best := u.plain
	for i, r := range u.shared {
		if i == 0 || r.users < best.users {
			best = r
		}
	}
	if best != u.plain {
		best.users++
	}
	return best
}

// more allocates a page of registers. It is not an error if the device has none left, because
// other registers can be used. The next QP tries again, as in libmlx5, because the device may have
// pages again.
func (u *uars) more(shared bool) {
	p, err := u.alloc(uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
	if err != nil {
		return
	}
	for _, r := range u.registersOf(p, uarUsable) {
		r.shared = shared
		if shared {
			u.sharers++
			u.shared = append(u.shared, r)
		} else {
			u.owners++
			u.free = append(u.free, r)
		}
	}
}

// registersOf returns the first n registers of each page of p, which accept bursts.
func (u *uars) registersOf(p *uarPage, n int) (all []*register) {
	for _, s := range spots(u.per, n, 2*u.split) {
		r := u.register(p.mem, s.offset, p.id+s.page)
		r.toggle, r.most = uint64(u.split), uint64(u.split/blockSize)
		all = append(all, r)
	}
	return all
}

// register returns the register at an offset of a mapping. page is the device's number of its page.
func (u *uars) register(mem *provider.Mapping, at int, page uint32) *register {
	return &register{reg: registerOf(mem.Bytes()[at:]), mem: mem, uar: page, at: at, bell: u.bell}
}

func (u *uars) put(r *register, half uint64) {
	if r == nil || r == u.plain || r.domain || u.fixed != nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.shared {
		r.users--
	} else {
		r.half = half
		u.free = append(u.free, r)
	}
}

// reportArm reports what has been stored to the register that arms CQs.
func (u *uars) reportArm(v uint64) {
	if u.bell != nil {
		u.bell.Doorbell(u.base.id, uarArm, binary.BigEndian.AppendUint64(nil, v))
	}
}

// retire replaces the mapped registers with zero pages and frees the kernel's pages.
func (u *uars) retire() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for i := range u.pages {
		p := u.pages[(i+1)%len(u.pages)] // the first page last, because all queues use it
		errs = append(errs, p.mem.Retire(), u.destroy(p))
	}
	u.pages = nil
	return provider.Join(errs...)
}
