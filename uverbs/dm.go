package uverbs

import (
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A DM is memory of the device: on-chip memory that the device accesses without the bus. An MR
// of [PD.RegDM] makes it available to work requests. This process reads and writes it with
// ReadAt and WriteAt, which are slow. Any number of goroutines may call its methods. They do not
// synchronize access to the memory, and a copy is not atomic.
//
// [DeviceAttr].MaxDMSize is the memory that the device has. All processes share it.
//
// After the removal of the device, the memory reads as zeros. ReadAt and WriteAt report it, as
// posts do, after an event or a command has reported that the device is gone.
type DM struct {
	object
	impl driver.DM
	size int
}

// A DMConfig describes device memory: ibv_alloc_dm(3).
type DMConfig struct {
	Size int // bytes
	// Align is the alignment of the memory's address in the device, in bytes: a power of two,
	// or 0 for any.
	Align int
}

func init() {
	driver.WithDM = func(dm any, op string, f func(driver.DM) error) error { return dm.(*DM).with(op, f) }
}

// dmWord is the size of an access: devices permit no smaller ones.
const dmWord = 4

const opAllocDM = "allocate device memory"

// AllocDM allocates device memory: ibv_alloc_dm(3). Its contents are undefined.
//
// AllocDM returns [ErrNotSupported] if the device has no such memory, [ErrInvalid] if the
// configuration is impossible, ENOMEM if too little of the memory is free, and [ErrClosed] after
// Close of the Context.
func (c *Context) AllocDM(cfg DMConfig) (*DM, error) {
	if cfg.Size <= 0 || cfg.Align < 0 || cfg.Align&(cfg.Align-1) != 0 {
		return nil, invalid(opAllocDM, c.name, fmt.Sprintf(
			"%d bytes aligned to %d: the size must be positive and the alignment a power of two, or 0", cfg.Size, cfg.Align))
	}
	d := &DM{size: cfg.Size}
	d.object = object{ctx: c, life: d, kind: "DM", rank: rankDM}
	if err := d.createWith(func() error { return d.alloc(cfg) }); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *DM) alloc(cfg DMConfig) error {
	p, ok := d.ctx.impl.(driver.DMs)
	if !ok {
		return &Error{Op: opAllocDM, Object: d.ctx.name, Kind: ErrNotSupported, Errno: unix.EOPNOTSUPP,
			Detail: "the driver has no device memory: use PD.Alloc"}
	}
	impl, handle, err := p.AllocDM(cfg.Size, cfg.Align)
	if err != nil {
		return d.ctx.wrap(opAllocDM, d.ctx.name, err, d.ctx.explainAllocDM(cfg, err))
	}
	d.impl, d.handle, d.number = impl, handle, handle
	return nil
}

func (c *Context) explainAllocDM(cfg DMConfig, err error) string {
	switch a, queryErr := c.QueryDevice(); {
	case notSupported(err):
		return "the device has no memory: use PD.Alloc"
	case queryErr == nil && uint64(cfg.Size) > a.MaxDMSize:
		return fmt.Sprintf("the device has %d bytes", a.MaxDMSize)
	case errnoOf(err) == unix.ENOMEM:
		return "too little device memory is free: close other DMs"
	case errnoOf(err) == unix.EINVAL:
		return fmt.Sprintf("the device permits no alignment of %d bytes", cfg.Align)
	}
	return ""
}

// Size returns the size in bytes.
func (d *DM) Size() int { return d.size }

// Context returns the context that d was allocated on.
func (d *DM) Context() *Context { return d.ctx }

// ReadAt copies device memory to p: ibv_memcpy_from_dm(3). off and the length of p must be
// multiples of 4. ReadAt returns io.EOF with the bytes before the end if p extends beyond it,
// [ErrInvalid] if off is outside the memory or the range is unaligned, [ErrClosed] after or
// during Close, and [ErrDeviceGone] if the device is gone. After the last two, the contents of p
// are undefined.
func (d *DM) ReadAt(p []byte, off int64) (int, error) {
	const op = "read device memory"
	n, err := d.bounds(op, p, off)
	if err != nil {
		return 0, err
	}
	if err := d.use(op, func() { d.impl.ReadAt(p[:n], int(off)) }); err != nil {
		return 0, err
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// WriteAt copies p to device memory: ibv_memcpy_to_dm(3). off and the length of p must be
// multiples of 4. Work requests that are posted later see the bytes. WriteAt returns
// [ErrInvalid], and writes nothing, if the range is not within the memory or unaligned,
// [ErrClosed] after or during Close, and [ErrDeviceGone] if the device is gone.
func (d *DM) WriteAt(p []byte, off int64) (int, error) {
	const op = "write device memory"
	n, err := d.bounds(op, p, off)
	if err != nil {
		return 0, err
	}
	if n < len(p) {
		return 0, invalid(op, d.String(), fmt.Sprintf("%d bytes at %d: the memory has %d", len(p), off, d.size))
	}
	if err := d.use(op, func() { d.impl.WriteAt(p, int(off)) }); err != nil {
		return 0, err
	}
	return n, nil
}

// bounds checks a range, and returns how many bytes of p are within the memory.
func (d *DM) bounds(op string, p []byte, off int64) (int, error) {
	if off < 0 || off > int64(d.size) || off%dmWord != 0 || len(p)%dmWord != 0 {
		return 0, invalid(op, d.String(), fmt.Sprintf(
			"%d bytes at %d of %d: both numbers must be multiples of %d", len(p), off, d.size, dmWord))
	}
	return min(len(p), d.size&^(dmWord-1)-int(off)), nil
}

// use calls f, which uses the mapping, unless the memory is closed or the device is gone. Close and the removal of a
// device replace the mapping with zero pages, which f may access without a lock. So use checks again after f: what f
// has copied may not be device memory.
func (d *DM) use(op string, f func()) error {
	if err := d.usable(op); err != nil {
		return err
	}
	f()
	return d.usable(op)
}

// with calls f, which may issue commands with the handle, unless the memory is closed. Close waits.
func (d *DM) with(op string, f func(driver.DM) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return named(op, d.String(), ErrClosed)
	}
	return d.ctx.wrap(op, d.String(), f(d.impl), "")
}

func (d *DM) usable(op string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed:
		return named(op, d.String(), ErrClosed)
	case d.ctx.deviceGone.Load():
		return named(op, d.String(), ErrDeviceGone)
	}
	return nil
}

// Close frees the memory: ibv_free_dm(3). It returns [ErrBusy] while an MR refers to the memory.
// It is idempotent.
func (d *DM) Close() error { return d.close() }

func (d *DM) destroy() error {
	return d.destroyHandle(uapi.UVERBS_OBJECT_DM, uapi.UVERBS_METHOD_DM_FREE, uapi.UVERBS_ATTR_FREE_DM_HANDLE)
}

func (d *DM) retire() error { return d.impl.Retire() }

const opRegDM = "register device memory"

// RegDM registers n bytes of device memory at off: ibv_reg_dm_mr(3). The addresses of the MR
// begin at 0. Bytes returns nil. As with [PD.RegDMABuf], on mlx5 call it before you create the
// QPs that receive into the memory.
//
// RegDM returns [ErrInvalid] if the range is not within the memory or the access flags contradict
// each other, and [ErrNotSupported] if the device does not support one of them. The memory must
// belong to the Context of the PD.
func (p *PD) RegDM(d *DM, off, n int, a Access) (*MR, error) {
	switch {
	case d == nil || d.ctx != p.ctx:
		return nil, invalid(opRegDM, p.String(), "the device memory is nil or belongs to another Context")
	case off < 0 || n <= 0 || off > d.size || n > d.size-off:
		return nil, invalid(opRegDM, p.String(), fmt.Sprintf("%d bytes at %d: %v has %d", n, off, d, d.size))
	}
	r := newRegistration(p)
	r.addParents(&d.object)
	r.unregistered = "an MR of device memory"
	return r.register(func(r *registration) error { return r.regDM(p, d, off, n, a) })
}

func (r *registration) regDM(p *PD, d *DM, off, n int, a Access) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.UVERBS_OBJECT_MR, uapi.UVERBS_METHOD_DM_MR_REG)
	cmd.NewHandle(uapi.UVERBS_ATTR_REG_DM_MR_HANDLE)
	cmd.Uint64(uapi.UVERBS_ATTR_REG_DM_MR_OFFSET, uint64(off))
	cmd.Uint64(uapi.UVERBS_ATTR_REG_DM_MR_LENGTH, uint64(n))
	cmd.Handle(uapi.UVERBS_ATTR_REG_DM_MR_PD_HANDLE, p.handle)
	cmd.Uint32(uapi.UVERBS_ATTR_REG_DM_MR_ACCESS_FLAGS, r.ctx.accessFlags(a)|uint32(ZeroBased))
	cmd.Handle(uapi.UVERBS_ATTR_REG_DM_MR_DM_HANDLE, d.handle)
	lkey := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_REG_DM_MR_RESP_LKEY)
	rkey := ioctl.OutOf[uint32](cmd, uapi.UVERBS_ATTR_REG_DM_MR_RESP_RKEY)
	if err := r.ctx.dev.Do(cmd); err != nil {
		detail := ""
		if errnoOf(err) == unix.EINVAL {
			detail = "device memory permits LocalWrite and the remote rights only, and RemoteWrite and RemoteAtomic need " +
				"LocalWrite beside them"
		}
		return p.ctx.wrap(opRegDM, p.String(), err, detail)
	}
	r.handle = cmd.Made(uapi.UVERBS_ATTR_REG_DM_MR_HANDLE)
	r.number = r.handle
	r.view = &mrView{foreign: true, size: n, room: int64(n), access: a, lkey: *lkey, rkey: *rkey}
	return nil
}
