package bnxt_re

import (
	"math"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/mmio"
)

// A pacer delays doorbells when the device's queue of doorbells is filling up: if it overflows, doorbells are lost. The
// queue belongs to all programs, and the kernel says in a page how many of the doorbells are to be delayed.
type pacer struct {
	ctx   *deviceContext
	page  *provider.Mapping    // what the kernel says
	bar   *provider.Mapping    // the register with the room in the queue
	words *[pacingWords]uint32 // of page
	room  *uint32              // the register
}

// The words of the page: struct bnxt_qplib_db_pacing_data.
const (
	pacedAt     = 0 // how many of 2^16 doorbells
	thresholdAt = 1 // doorbells in the queue above which they wait
	alarmAt     = 2 // and above which the kernel is notified; 0: never
	depthAt     = 3
	maskAt      = 4 // of the register, then the shift
	shiftAt     = 5
	registerAt  = 6 // its address
	pacingWords = 7
)

// Limits of a delay. C's library waits without end.
const (
	longestStep = 128 * time.Microsecond
	mostSteps   = 1000
)

// newPacer maps the pages.
func (c *deviceContext) newPacer() (*pacer, error) {
	p := &pacer{ctx: c}
	var err error
	if p.page, err = c.allocPage(uapi.BNXT_RE_ALLOC_DBR_PAGE); err != nil {
		return nil, provider.Join(err, p.retire())
	}
	if p.bar, err = c.allocPage(uapi.BNXT_RE_ALLOC_DBR_BAR_PAGE); err != nil {
		return nil, provider.Join(err, p.retire())
	}
	p.words = (*[pacingWords]uint32)(halvesOf(p.page, 0, pacingWords))
	at := int(atomic.LoadUint32(&p.words[registerAt])) & (unix.Getpagesize() - 1)
	if at%4 != 0 {
		return nil, provider.Join(provider.BadABI("open", "a register at %#x", at), p.retire())
	}
	p.room = &halvesOf(p.bar, at, 1)[0]
	return p, nil
}

// allocPage allocates a page of the driver and maps it. The kernel's object is needed only for that.
func (c *deviceContext) allocPage(kind uint64) (*provider.Mapping, error) {
	const op = "map a page for the pace of doorbells"
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_ALLOC_PAGE)
	cmd.NewHandle(uapi.BNXT_RE_ALLOC_PAGE_HANDLE)
	cmd.Uint64(uapi.BNXT_RE_ALLOC_PAGE_TYPE, kind)
	offset := ioctl.OutOf[uint64](cmd, uapi.BNXT_RE_ALLOC_PAGE_MMAP_OFFSET)
	length := ioctl.OutOf[uint32](cmd, uapi.BNXT_RE_ALLOC_PAGE_MMAP_LENGTH)
	ioctl.OutOf[uint32](cmd, uapi.BNXT_RE_ALLOC_PAGE_DPI)
	if err := c.dev.Do(cmd); err != nil {
		return nil, provider.KernelError(op, "", err)
	}
	handle := cmd.Made(uapi.BNXT_RE_ALLOC_PAGE_HANDLE)
	m, err := c.mapToRead(op, *offset, *length)
	return m, provider.Join(err, c.destroy(uapi.BNXT_RE_OBJECT_ALLOC_PAGE, uapi.BNXT_RE_METHOD_DESTROY_PAGE,
		uapi.BNXT_RE_DESTROY_PAGE_HANDLE, handle))
}

// mapToRead maps a page of the driver.
func (c *deviceContext) mapToRead(op string, offset uint64, length uint32) (*provider.Mapping, error) {
	if length != uint32(unix.Getpagesize()) || offset > math.MaxInt64 {
		return nil, provider.BadABI(op, "%d bytes at %#x", length, offset)
	}
	m, err := provider.MapToRead(c.dev, int64(offset), int(length))
	if err != nil {
		return nil, provider.KernelError(op, "", err)
	}
	return m, nil
}

// destroy destroys an object of the kernel whose memory remains mapped.
func (c *deviceContext) destroy(object, method, attr uint16, handle uint32) error {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(object, method)
	cmd.Handle(attr, handle)
	if err := c.dev.Do(cmd); err != nil {
		return provider.KernelError("destroy what pages were mapped by", "", err)
	}
	return nil
}

// waiting returns how many doorbells the queue of the device has.
func (p *pacer) waiting() uint32 {
	w := p.words
	room := mmio.Load32(p.room) & atomic.LoadUint32(&w[maskAt]) >> (atomic.LoadUint32(&w[shiftAt]) & 31)
	return atomic.LoadUint32(&w[depthAt]) - room
}

// wait delays a doorbell if the kernel says so.
func (p *pacer) wait() {
	if rand.Uint32()&0xffff >= atomic.LoadUint32(&p.words[pacedAt]) {
		return
	}
	alarm := atomic.LoadUint32(&p.words[alarmAt])
	step := time.Microsecond
	for range mostSteps {
		n := p.waiting()
		if n <= atomic.LoadUint32(&p.words[thresholdAt]) {
			return
		}
		if alarm != 0 && n > alarm {
			p.notify()
			alarm = 0
		}
		for start, d := time.Now(), rand.N(step); time.Since(start) < d; {
			runtime.Gosched()
		}
		step = min(2*step, longestStep)
	}
}

// notify notifies the kernel that the queue is almost full. It does so in the post, which waits anyway. An error
// changes nothing.
func (p *pacer) notify() {
	cmd := ioctl.Get()
	defer cmd.Put()
	cmd.Start(uapi.BNXT_RE_OBJECT_NOTIFY_DRV, uapi.BNXT_RE_METHOD_NOTIFY_DRV)
	_ = p.ctx.dev.Do(cmd)
}

// retire replaces the pages: all doorbells are then immediate.
func (p *pacer) retire() error {
	if p == nil {
		return nil
	}
	return provider.Join(p.page.Retire(), p.bar.Retire())
}
