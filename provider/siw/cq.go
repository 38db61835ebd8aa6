package siw

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// cq implements driver.CQ.
type cq struct {
	mem     provider.Mapping
	words   []uint64
	mask    uint32
	cur     uint32  // completions polled so far
	control *uint64 // for what the queue is armed

	ctx     *deviceContext
	handle  uint32
	failure atomic.Pointer[error] // what Poll returns if the queue is empty, or nil
	retired atomic.Bool

	mu    sync.Mutex
	ended []*queue // queues of QPs in ERR
	some  atomic.Bool
}

// use sets the memory of n entries.
func (c *cq) use(words []uint64, n uint32) {
	c.words, c.mask = words, n-1
	c.control = &words[n*cqeWords]
}

// flags returns the second word of entry i: flags, opcode, status, length.
func (c *cq) flags(i uint32) *uint64 { return &c.words[(i&c.mask)*cqeWords+1] }

// Poll implements driver.CQ. The kernel writes an entry only after its flags have been cleared, so clearing them
// releases it.
func (c *cq) Poll(wcs []uverbs.WC) (n int, err error) {
	for n < len(wcs) {
		v := atomic.LoadUint64(c.flags(c.cur))
		if v&valid == 0 {
			break
		}
		at := (c.cur & c.mask) * cqeWords
		decode(&wcs[n], v, c.words[at], c.words[at+3])
		atomic.StoreUint64(c.flags(c.cur), 0)
		c.cur++
		n++
	}
	if n < len(wcs) && c.some.Load() {
		n += c.flush(wcs[n:])
	}
	// The entries may have been read from zero pages. Retire sets retired before it
	// maps them, and the stores above order this load after the loads of the entries,
	// also on arm64.
	if c.retired.Load() {
		return 0, uverbs.ErrClosed
	}
	if n == 0 {
		if f := c.failure.Load(); f != nil {
			err = *f
		}
	}
	runtime.KeepAlive(c)
	return n, err
}

// decode fills in wc. The kernel reports neither the key that a message has invalidated nor immediate data, which siw
// does not have.
func decode(wc *uverbs.WC, v, wrID, qpn uint64) {
	*wc = uverbs.WC{WRID: wrID, QPNum: uint32(qpn), Status: uverbs.WCGeneralErr}
	status, op := uint16(v>>statusAt), uint8(v>>cqeOpAt)
	if int(status) < len(statuses) {
		wc.Status = statuses[status]
	}
	if wc.Status != uverbs.WCSuccess {
		return
	}
	if int(op) >= len(completed) || completed[op] == none {
		wc.Status = uverbs.WCGeneralErr
		return
	}
	wc.Opcode, wc.ByteLen = completed[op], uint32(v>>lengthAt)
}

// The fields of the second word of a CQE.
const (
	cqeOpAt  = 8
	statusAt = 16
	lengthAt = 32
)

var statuses = [uapi.SIW_NUM_WC_STATUS]uverbs.WCStatus{
	uapi.SIW_WC_SUCCESS:         uverbs.WCSuccess,
	uapi.SIW_WC_LOC_LEN_ERR:     uverbs.WCLocLenErr,
	uapi.SIW_WC_LOC_PROT_ERR:    uverbs.WCLocProtErr,
	uapi.SIW_WC_LOC_QP_OP_ERR:   uverbs.WCLocQPOpErr,
	uapi.SIW_WC_WR_FLUSH_ERR:    uverbs.WCWRFlushErr,
	uapi.SIW_WC_BAD_RESP_ERR:    uverbs.WCBadRespErr,
	uapi.SIW_WC_LOC_ACCESS_ERR:  uverbs.WCLocAccessErr,
	uapi.SIW_WC_REM_ACCESS_ERR:  uverbs.WCRemAccessErr,
	uapi.SIW_WC_REM_INV_REQ_ERR: uverbs.WCRemInvReqErr,
	uapi.SIW_WC_GENERAL_ERR:     uverbs.WCGeneralErr,
}

const none = ^uverbs.WCOpcode(0)

// completed has the opcodes of completions by the driver's opcodes.
var completed = [uapi.SIW_NUM_OPCODES]uverbs.WCOpcode{
	uapi.SIW_OP_WRITE:           uverbs.WCWrite,
	uapi.SIW_OP_READ:            uverbs.WCRead,
	uapi.SIW_OP_READ_LOCAL_INV:  uverbs.WCRead,
	uapi.SIW_OP_SEND:            uverbs.WCSend,
	uapi.SIW_OP_SEND_WITH_IMM:   uverbs.WCSend,
	uapi.SIW_OP_SEND_REMOTE_INV: uverbs.WCSend,
	uapi.SIW_OP_FETCH_AND_ADD:   uverbs.WCFetchAdd,
	uapi.SIW_OP_COMP_AND_SWAP:   uverbs.WCCompareSwap,
	uapi.SIW_OP_RECEIVE:         uverbs.WCRecv,
	9:                           none, // the responses of READs, and what only the kernel posts
	10:                          none,
	11:                          none,
}

// Fail implements driver.CQ.
func (c *cq) Fail(err error) { c.failure.Store(&err) }

// Ready implements driver.CQ.
func (c *cq) Ready() bool {
	ready := (atomic.LoadUint64(c.flags(c.cur))&valid != 0 || c.unflushed() || c.failure.Load() != nil) &&
		!c.retired.Load()
	runtime.KeepAlive(c)
	return ready
}

// Arm implements driver.CQ. It is a store to memory that the kernel reads before it raises an event. The kernel treats
// no receive as solicited, so a queue that is armed for solicited completions would get no event of messages: it is
// armed for all.
func (c *cq) Arm(bool, uint32) error {
	if c.retired.Load() {
		return uverbs.ErrClosed
	}
	atomic.StoreUint64(c.control, uapi.SIW_NOTIFY_SOLICITED|uapi.SIW_NOTIFY_NEXT_COMPLETION)
	runtime.KeepAlive(c)
	return nil
}

// Resize implements driver.CQ.
func (c *cq) Resize(int, driver.ResizeCommand) (driver.Reply, error) {
	return driver.Reply{}, unsupported("resize CQ", "CQs of siw cannot be resized: create another one")
}

// Retire implements driver.CQ.
func (c *cq) Retire(inUse bool) error {
	c.retired.Store(true)
	if c.ctx != nil {
		c.ctx.cqs.CompareAndDelete(c.handle, c)
	}
	return c.mem.Release(inUse)
}
