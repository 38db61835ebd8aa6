package rxe

import (
	"errors"
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements driver.CQ.
type cq struct {
	ring
	cur  uint32 // our consumer index
	seen uint32 // the kernel's producer index when it was last read

	ctx     *deviceContext
	failure atomic.Pointer[error] // what Poll returns if the queue is empty, or nil
	lost    *error                // of a resize whose new ring could not be mapped
	retired atomic.Bool

	// Parts of the queue, so that it is one allocation.
	notify notify
	first  provider.Mapping // of the ring, until it is resized
	offer  uapi.RxeCreateCqResp
}

// use makes Poll read from r.
func (c *cq) use(r ring) {
	c.ring = r
	c.cur = r.cons.Load() & r.mask
	c.seen = c.cur
}

// Poll implements driver.CQ.
func (c *cq) Poll(wcs []uverbs.WC) (int, error) {
	n := int((c.seen - c.cur) & c.mask)
	if n < len(wcs) {
		seen := c.prod.Load()
		if seen > c.mask {
			return 0, errIndex
		}
		c.seen = seen
		if n = int((seen - c.cur) & c.mask); n == 0 {
			return 0, c.empty()
		}
	}
	n = min(n, len(wcs))
	cur := c.cur
	for k := range wcs[:n] {
		decode(&wcs[k], c.cqe(cur))
		cur = (cur + 1) & c.mask
	}
	c.cur = cur
	c.cons.Store(cur)
	// The entries may have been read from zero pages. Retire sets retired before it
	// maps them, and the store above orders this load after the loads of the entries,
	// also on arm64.
	if c.retired.Load() {
		return 0, uverbs.ErrClosed
	}
	runtime.KeepAlive(c)
	return n, nil
}

// empty returns the error of Poll for an empty queue.
func (c *cq) empty() error {
	if f := c.failure.Load(); f != nil {
		return *f
	}
	return nil
}

// Fail implements driver.CQ.
func (c *cq) Fail(err error) { c.failure.Store(&err) }

// decode fills in wc. The statuses, opcodes and flags of the ABI are those of the C
// library, and so are ours.
func decode(wc *uverbs.WC, e *uapi.IbUverbsWc) {
	*wc = uverbs.WC{WRID: e.WrId, QPNum: e.QpNum, VendorErr: e.VendorErr}
	if e.Status != 0 {
		// The kernel leaves the other fields zero.
		wc.Status = uverbs.WCGeneralErr
		if e.Status <= maxStatus {
			wc.Status = uverbs.WCStatus(e.Status)
		}
		return
	}
	wc.Opcode = uverbs.WCOpcode(e.Opcode)
	wc.ByteLen = e.ByteLen
	wc.SrcQP = e.SrcQp
	wc.Flags = uverbs.WCFlags(e.WcFlags) & knownFlags
	if e.WcFlags&kernelWithInv != 0 {
		wc.Flags |= uverbs.WCWithInv
	}
	wc.Imm = e.Ex
	if wc.Flags&uverbs.WCWithImm != 0 {
		wc.Imm = bits.ReverseBytes32(e.Ex)
	}
	wc.PKeyIndex = e.PkeyIndex
	wc.SLID = e.Slid
	wc.SL = e.Sl
	wc.PathBits = e.DlidPathBits
}

// kernelWithInv is IB_WC_WITH_INVALIDATE, a value that is internal to the kernel
// but that rxe writes to the ring. In the C library this bit means that checksums
// are correct, which rxe does not report.
const kernelWithInv = 1 << 2

const (
	maxStatus  = uint32(uverbs.WCTMRndvIncomplete)
	knownFlags = uverbs.WCGRH | uverbs.WCWithImm
)

// Ready implements driver.CQ. It also returns true if Poll would return an
// error.
func (c *cq) Ready() bool {
	ready := (c.prod.Load() != c.cur || c.failure.Load() != nil) && !c.retired.Load()
	runtime.KeepAlive(c)
	return ready
}

// Arm implements driver.CQ. The kernel does not report whether an entry
// arrived before, so the caller must poll once more after Arm.
func (c *cq) Arm(solicitedOnly bool, _ uint32) error {
	err := c.notify.arm(solicitedOnly)
	switch {
	case err == nil:
		return nil
	case c.retired.Load() || errors.Is(err, os.ErrClosed):
		return uverbs.ErrClosed
	}
	return provider.KernelError("arm CQ", c.ctx.dev.Name(), err)
}

// Resize implements driver.CQ.
//
// The kernel creates another ring, copies the unpolled entries to its beginning,
// and writes to it from then on. It knows which entries are unpolled because every
// Poll publishes its index. If the new ring cannot be mapped, Poll returns the
// error until another Resize succeeds, which brings back all entries.
func (c *cq) Resize(n int, resize driver.ResizeCommand) (driver.Reply, error) {
	resp := new(uapi.RxeResizeCqResp)
	reply, err := resize(n, nil, ioctl.BytesOf(resp))
	if err != nil {
		return reply, err
	}
	r, err := c.ctx.mapRing(new(provider.Mapping), "resized completion queue", resp.Mi, cqeSize)
	old := c.ring
	if err != nil {
		c.lose(&err)
		c.use(emptyRing(old))
	} else {
		c.lose(nil)
		c.use(r)
	}
	return reply, provider.Join(err, old.retire(true))
}

// lose records why the ring cannot be accessed, or nil when it can be again. It
// does not replace an error of Fail.
func (c *cq) lose(err *error) {
	if c.lost != err {
		c.failure.CompareAndSwap(c.lost, err)
	}
	c.lost = err
}

// emptyRing returns r with indices that mark it as empty. It keeps the mapping, so
// that the pointers in it stay valid.
func emptyRing(r ring) ring {
	r.prod, r.cons = new(atomic.Uint32), new(atomic.Uint32)
	return r
}

// Retire implements driver.CQ.
func (c *cq) Retire(inUse bool) error {
	c.retired.Store(true)
	return c.retire(inUse)
}
