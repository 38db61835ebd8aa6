package rxe

import (
	"errors"
	"math/bits"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements uverbs.ProviderCQ.
type cq struct {
	ring
	cur  uint32 // our index: what has been taken
	seen uint32 // the kernel's index, as of the last look

	ctx     *deviceContext
	notify  *notify
	lost    error // the ring could not be mapped after a resize
	retired atomic.Bool
}

func newCQ(ctx *deviceContext, r ring, n *notify) *cq {
	c := &cq{ctx: ctx, notify: n}
	c.use(r)
	return c
}

// use makes r the ring to poll.
func (c *cq) use(r ring) {
	c.ring = r
	c.cur = r.cons.Load() & r.mask
	c.seen = c.cur
}

// Poll implements uverbs.ProviderCQ.
func (c *cq) Poll(wcs []uverbs.WC) (int, error) {
	n := int((c.seen - c.cur) & c.mask)
	if n < len(wcs) {
		seen := c.prod.Load()
		if seen > c.mask {
			return 0, errIndex
		}
		c.seen = seen
		if n = int((seen - c.cur) & c.mask); n == 0 {
			return 0, c.lost
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
	// What was read may have been zero pages. Retire says so before it maps
	// them, and the store above keeps this load behind the loads of the
	// entries on arm64 too.
	if c.retired.Load() {
		return 0, uverbs.ErrClosed
	}
	runtime.KeepAlive(c)
	return n, nil
}

// decode fills in wc. The statuses, opcodes and flags of the ABI are those of
// the C library, and so are ours.
func decode(wc *uverbs.WC, e *uapi.IbUverbsWc) {
	*wc = uverbs.WC{WRID: e.WrId, QPNum: e.QpNum, VendorErr: e.VendorErr}
	if e.Status != 0 {
		// The kernel leaves the rest zero.
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

// kernelWithInv is IB_WC_WITH_INVALIDATE, a number of the kernel's own that rxe
// puts on the ring. In the library's numbers it is the flag of checksums, which
// rxe does not have.
const kernelWithInv = 1 << 2

const (
	maxStatus  = uint32(uverbs.WCTMRndvIncomplete)
	knownFlags = uverbs.WCGRH | uverbs.WCWithImm
)

// Ready implements uverbs.ProviderCQ. It is true also when Poll has an error
// to tell.
func (c *cq) Ready() bool {
	ready := (c.prod.Load() != c.cur || c.lost != nil) && !c.retired.Load()
	runtime.KeepAlive(c)
	return ready
}

// Arm implements uverbs.ProviderCQ. The kernel does not tell whether an entry
// came before: poll once more after it.
func (c *cq) Arm(solicitedOnly bool, _ uint32) error {
	err := c.notify.arm(solicitedOnly)
	switch {
	case err == nil:
		return nil
	case c.retired.Load() || errors.Is(err, os.ErrClosed):
		return uverbs.ErrClosed
	}
	return kernelError("arm CQ", c.ctx.dev.Name(), err)
}

// Resize implements uverbs.ProviderCQ.
//
// The kernel makes another ring, copies the entries that have not been taken
// to its beginning, and writes to it from then on. Every Poll publishes what it
// took, so the kernel knows what that is. Should the new ring be out of reach,
// Poll returns the error until another Resize, which brings all of it back.
func (c *cq) Resize(_ int, resize uverbs.ProviderCommand) (uverbs.ProviderReply, error) {
	resp := new(uapi.RxeResizeCqResp)
	reply, err := resize(nil, ioctl.BytesOf(resp))
	if err != nil {
		return reply, err
	}
	r, err := c.ctx.mapRing("resized completion queue", resp.Mi, cqeSize)
	old := c.ring
	if err != nil {
		c.lost = err
		c.use(emptyRing(old))
	} else {
		c.lost = nil
		c.use(r)
	}
	return reply, errors.Join(err, old.retire())
}

// emptyRing is r with indices that say that there is nothing in it. It keeps
// the mapping, so that the pointers in it stay good.
func emptyRing(r ring) ring {
	r.prod, r.cons = new(atomic.Uint32), new(atomic.Uint32)
	return r
}

// Retire implements uverbs.ProviderCQ.
func (c *cq) Retire() error {
	c.retired.Store(true)
	return c.retire()
}
