package mlx5

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
	"github.com/goverbs/goverbs/provider"
)

// Layout of a register page (UAR), which has 4 KiB whatever the CPU's pages
// have. A CPU's page holds several where it is larger.
const (
	uarSize      = 4096
	uarArm       = 0x20  // CQ doorbell
	uarSend      = 0x800 // registers for sends
	uarUsable    = 2     // of them; two more are for other uses
	uarRegisters = 4
)

// A register is where send requests are told to the device.
type register struct {
	reg    *uint64
	mem    *provider.Mapping // where it lies
	uar    uint32            // its page, as the device numbers it
	toggle uint64            // half its size; 0: it takes 8 bytes at a time
	most   uint64            // blocks that it takes at a time

	half uint64 // to be written next, whoever does

	// Of a register that several QPs use.
	shared bool
	domain bool // they are of one thread domain: no lock is needed
	mu     sync.Mutex
	users  int
}

// ring is mmio.Ring on a register that several QPs use.
func (r *register) ring(d *mmio.Doorbell, count uint32, wqe *[64]byte, blocks uint64) {
	if !r.domain {
		r.mu.Lock()
	}
	d.Half = r.half
	mmio.Ring(d, count, wqe, blocks)
	r.half = d.Half
	if !r.domain {
		r.mu.Unlock()
	}
}

// A uarPage is mapped registers, and the kernel's object that they belong to.
type uarPage struct {
	mem    *provider.Mapping
	id     uint32 // as the device numbers it
	handle uint32
	object bool
}

// uars are the register pages of a context.
type uars struct {
	dev   *ioctl.Device
	set   settings
	split int // bytes of half a register; 0: none takes bursts
	per   int // register pages in a CPU's page

	base  *uarPage // for arming CQs, and for QPs where there is nothing better
	plain *register
	arm   *uint64

	mu     sync.Mutex
	pages  []*uarPage
	owned  []*register // free ones
	shared []*register
	spare  []*register // of thread domains that are closed
	made   int         // registers for bursts
	owners int         // of them, made to be owned
	fixed  []*register
}

// open makes the page that every context needs. registers is how many the kernel
// has made by itself: an old one.
func (u *uars) open(registers int) error {
	if registers > 0 {
		return u.openFixed(registers)
	}
	p, err := u.alloc(uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
	if err != nil {
		return kernelError("make a register page", u.dev.Name(), err,
			"the kernel makes none, for the device has none left or a policy forbids it")
	}
	u.use(p)
	u.plain = &register{reg: registerOf(p.mem.Bytes()[uarSend:]), mem: p.mem, uar: p.id}
	return nil
}

func (u *uars) use(p *uarPage) {
	u.base = p
	u.arm = registerOf(p.mem.Bytes()[uarArm:])
}

// alloc has the kernel make a page and maps it.
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
		return nil, errors.Join(errShortPage, u.destroy(p))
	}
	mem, err := provider.Map(u.dev, int64(*offset), int(*length))
	if err != nil {
		return nil, errors.Join(err, u.destroy(p))
	}
	p.mem = mem
	u.pages = append(u.pages, p)
	return p, nil
}

func (u *uars) destroy(p *uarPage) error {
	if !p.object {
		return nil
	}
	c := ioctl.Get()
	defer c.Put()
	c.Start(uapi.MLX5_IB_OBJECT_UAR, uapi.MLX5_IB_METHOD_UAR_OBJ_DESTROY)
	c.Handle(uapi.MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, p.handle)
	err := u.dev.Do(c)
	if errors.Is(err, unix.EIO) { // the device is gone, and its pages with it
		return nil
	}
	return err
}

// A spot is where a register lies in a mapping.
type spot struct {
	offset int
	page   uint32 // after the first
}

// spots are the first n registers of each of the per pages of a mapping, with a
// size each.
func spots(per, n, size int) []spot {
	var all []spot
	for page := range per {
		for i := range n {
			all = append(all, spot{page*uarSize + uarSend + i*size, uint32(page)})
		}
	}
	return all
}

// get returns a register for a QP, and put takes it back.
func (u *uars) get() *register {
	if u.split == 0 || u.fixed != nil {
		return u.plain
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.owned) == 0 && u.owners < u.set.owned {
		u.more(false)
	}
	if last := len(u.owned) - 1; last >= 0 {
		r := u.owned[last]
		u.owned = u.owned[:last]
		return r
	}
	if u.made < u.set.registers {
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

// more makes a page of registers. That the device has none left is no error:
// there are others.
func (u *uars) more(shared bool) {
	p, err := u.alloc(uapi.MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
	if err != nil {
		u.made, u.owners = maxRegisters, maxRegisters
		return
	}
	for _, r := range u.registersOf(p) {
		r.shared = shared
		u.made++
		if shared {
			u.shared = append(u.shared, r)
		} else {
			u.owners++
			u.owned = append(u.owned, r)
		}
	}
}

// registersOf are the registers of a page that take bursts.
func (u *uars) registersOf(p *uarPage) (all []*register) {
	for _, s := range spots(u.per, uarUsable, 2*u.split) {
		all = append(all, &register{reg: registerOf(p.mem.Bytes()[s.offset:]), mem: p.mem, uar: p.id + s.page,
			toggle: uint64(u.split), most: uint64(u.split / 64)})
	}
	return all
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
		u.owned = append(u.owned, r)
	}
}

// retire puts zero pages where the registers were, and has the kernel let the
// pages go.
func (u *uars) retire() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	for i := range u.pages {
		p := u.pages[(i+1)%len(u.pages)] // the first, which all need, last
		errs = append(errs, p.mem.Retire(), u.destroy(p))
	}
	u.pages = nil
	return errors.Join(errs...)
}
