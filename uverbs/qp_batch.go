package uverbs

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/noescape"
	"github.com/goverbs/goverbs/internal/race"
	"golang.org/x/sys/unix"
)

// A SendBatch writes several send requests directly to the queue and rings the doorbell once
// for all of them: ibv_wr_start(3). It holds the send queue from [QP.StartSend] until Submit or
// Abort; one of the two must be called. Only the goroutine that started a batch may use it.
//
//	b := qp.StartSend()
//	defer b.Abort() // does nothing after Submit; releases the queue if something panics
//	b.WriteSGE(1, 0, addr, rkey, mr.SGE(0, 64))
//	b.SendInline(2, 0, header)
//	b.SendImm(3, uverbs.Signaled, imm)
//	b.SGE(mr.SGE(64, 100))
//	b.SGE(mr.SGE(512, 28))
//	err := b.Submit()
//
// The buffers of an operation are those that are added after it. Nothing is allocated. While a
// batch is open, posts by other goroutines, changes of the QP's state, and Close of the QP or
// its Context wait until it ends. On a single-goroutine QP nothing waits: a post or another
// batch fails with [ErrBusy] until the open batch ends. A SendBatch must not be copied.
type SendBatch struct {
	_    noCopy
	q    *QP
	impl providerQP // carries out the operations; the value discardOps after an error
	err  error      // why nothing can be added; ErrClosed after the end
}

// StartSend begins a batch. Submit reports errors, such as a wrong state of the QP.
func (q *QP) StartSend() SendBatch {
	if !q.single {
		q.sq.Lock()
	} else if q.poster == duringBatch {
		return SendBatch{q: q, impl: discardOps, err: errBatchOpen}
	}
	if g := q.sendGate.Load(); g != gateOpen {
		return SendBatch{q: q, impl: discardOps, err: gateErrors[g]}
	}
	if q.single {
		q.poster = duringBatch
	}
	q.impl.Begin()
	return SendBatch{q: q, impl: q.impl}
}

// openBatch replaces the provider of a single-goroutine QP while a batch is open: posts would
// overwrite what the batch has written to the queue.
type openBatch struct{ discard }

var duringBatch providerQP = new(openBatch)

func (*openBatch) PostSend([]SendWR) (int, error) { return 0, errBatchOpen }

// errBatchOpen is the error of a post while a batch is open. It matches ErrBusy.
var errBatchOpen error = &sentinel{
	text:  "uverbs: a batch is open on this single-goroutine QP: call its Submit or Abort before posting",
	errno: unix.EBUSY,
	kinds: []error{ErrBusy},
}

// Send adds a SEND.
func (b *SendBatch) Send(wrID uint64, f SendFlags) {
	b.impl.Op(OpSend, f, wrID, 0, 0, 0)
}

// SendImm adds a SEND with immediate.
func (b *SendBatch) SendImm(wrID uint64, f SendFlags, imm uint32) {
	b.impl.Op(OpSendImm, f, wrID, 0, 0, imm)
}

// Write adds an RDMA WRITE to the peer's memory at raddr.
func (b *SendBatch) Write(wrID uint64, f SendFlags, raddr uint64, rkey uint32) {
	b.impl.Op(OpWrite, f, wrID, raddr, rkey, 0)
}

// WriteImm adds an RDMA WRITE with immediate.
func (b *SendBatch) WriteImm(wrID uint64, f SendFlags, raddr uint64, rkey, imm uint32) {
	b.impl.Op(OpWriteImm, f, wrID, raddr, rkey, imm)
}

// Read adds an RDMA READ of the peer's memory at raddr.
func (b *SendBatch) Read(wrID uint64, f SendFlags, raddr uint64, rkey uint32) {
	b.impl.Op(OpRead, f, wrID, raddr, rkey, 0)
}

// CompareSwap adds an atomic COMPARE_SWAP of the 8 bytes at raddr. It must be followed by one
// SGE of 8 bytes, which receives the previous value.
func (b *SendBatch) CompareSwap(wrID uint64, f SendFlags, raddr uint64, rkey uint32, compare, swap uint64) {
	b.impl.Op(OpCompareSwap, f, wrID, raddr, rkey, 0)
	b.impl.Atomic(compare, swap)
}

// FetchAdd adds an atomic FETCH_ADD of the 8 bytes at raddr. It must be followed by one SGE of
// 8 bytes, which receives the previous value.
func (b *SendBatch) FetchAdd(wrID uint64, f SendFlags, raddr uint64, rkey uint32, add uint64) {
	b.impl.Op(OpFetchAdd, f, wrID, raddr, rkey, 0)
	b.impl.Atomic(add, 0)
}

// LocalInv adds a LOCAL_INV, which invalidates the key of a type 2 window.
func (b *SendBatch) LocalInv(wrID uint64, f SendFlags, rkey uint32) {
	b.impl.Op(OpLocalInv, f, wrID, 0, 0, rkey)
}

// SendInv adds a SEND that invalidates one of the peer's keys.
func (b *SendBatch) SendInv(wrID uint64, f SendFlags, rkey uint32) {
	b.impl.Op(OpSendInv, f, wrID, 0, 0, rkey)
}

// BindMW adds a BIND_MW. [MWBind] describes w, rkey and r.
func (b *SendBatch) BindMW(wrID uint64, f SendFlags, w *MW, rkey uint32, r MWRange) {
	if b.err != nil {
		return
	}
	b.q.impl.Op(OpBindMW, f, wrID, 0, 0, 0)
	b.q.impl.Bind(b.q.resolveBind(&MWBind{MW: w, RKey: rkey, MWRange: r}))
}

// Flush adds a FLUSH of n bytes at raddr.
func (b *SendBatch) Flush(wrID uint64, f SendFlags, raddr uint64, rkey, n uint32, p Placement, s Selectivity) {
	b.impl.Op(OpFlush, f, wrID, raddr, rkey, 0)
	b.impl.Flush(n, uint8(p), uint8(s))
}

// AtomicWrite adds an ATOMIC_WRITE of the 8 bytes of value, in host order, to
// raddr.
func (b *SendBatch) AtomicWrite(wrID uint64, f SendFlags, raddr uint64, rkey uint32, value uint64) {
	b.impl.Op(OpAtomicWrite, f, wrID, raddr, rkey, 0)
	b.impl.Atomic(0, value)
}

// TSO adds a TSO with the headers of one frame, which are copied, and mss bytes of data in each
// frame. SGEs with the data follow.
func (b *SendBatch) TSO(wrID uint64, f SendFlags, headers []byte, mss uint16) {
	b.impl.Op(OpTSO, f, wrID, 0, 0, uint32(mss))
	b.impl.Inline(noescape.Bytes(headers))
}

// RawWQE adds a work queue element that the program has built in the device's own format, for
// what the other methods do not offer: mlx5dv_wr_raw_wqe(3). wqe is copied. Its completion, if
// it requests one, has the opcode [WCRawWQE].
//
// For mlx5 it is what the adapter's reference manual calls a send WQE: a control segment and
// further segments, of 16 bytes each. The control segment must contain the QPN of the QP, and as
// the number of segments len(wqe)/16, at most 63. The WQE must not be longer than the longest
// request of the QP. Otherwise, and if an SGE or other part follows, Submit returns
// [ErrMalformed]. The provider fills in the index of the WQE, and the fence that a BIND_MW or
// LOCAL_INV before it requires. Nothing else is checked: a WQE that the device does not accept
// moves the QP to ERR.
//
// Submit returns [ErrOpNotSupported] if the device's provider has no such format.
func (b *SendBatch) RawWQE(wrID uint64, wqe []byte) {
	if b.err != nil {
		return
	}
	if p, ok := b.q.impl.(driver.RawPoster); ok {
		p.RawWQE(wrID, noescape.Bytes(wqe))
		return
	}
	b.refuse(ErrOpNotSupported)
}

// refuse drops what has been added and makes Submit return err.
func (b *SendBatch) refuse(err error) {
	b.q.impl.Abort()
	if b.q.single {
		b.q.poster = b.q.impl
	}
	b.impl, b.err = discardOps, err
}

// SendSGE is Send and SGE in one call, which is cheaper than two calls. The same holds for the
// four methods below. More SGEs, and the other attributes of the operation, may follow.
func (b *SendBatch) SendSGE(wrID uint64, f SendFlags, s SGE) {
	b.impl.OpSGE(OpSend, f, wrID, 0, 0, s)
}

// WriteSGE is Write and SGE in one call.
func (b *SendBatch) WriteSGE(wrID uint64, f SendFlags, raddr uint64, rkey uint32, s SGE) {
	b.impl.OpSGE(OpWrite, f, wrID, raddr, rkey, s)
}

// ReadSGE is Read and SGE in one call.
func (b *SendBatch) ReadSGE(wrID uint64, f SendFlags, raddr uint64, rkey uint32, s SGE) {
	b.impl.OpSGE(OpRead, f, wrID, raddr, rkey, s)
}

// SGE adds a buffer to the latest operation.
func (b *SendBatch) SGE(s SGE) {
	b.impl.SGE(s)
}

// Inline makes a copy of data the payload of the latest operation.
func (b *SendBatch) Inline(data []byte) {
	b.impl.Inline(noescape.Bytes(data))
}

// UDAddr sets the destination of the latest operation, on a UD QP, as AH, QPN and QKey of
// SendWR do. Each operation on a UD QP needs it.
func (b *SendBatch) UDAddr(ah *AH, qpn, qkey uint32) {
	b.impl.UDAddr(ah.part(), qpn, qkey)
}

// RemoteSRQ sets the peer's XRC SRQ for the latest operation, on an XRCSend QP, as
// SendWR.RemoteSRQN does. Each operation on an XRCSend QP needs it except BIND_MW and
// LOCAL_INV, which are carried out locally.
func (b *SendBatch) RemoteSRQ(srqn uint32) {
	b.impl.RemoteSRQ(srqn)
}

// DCAddr sets the destination of the latest operation, on a DCI, as AH, QPN and DCKey of SendWR
// do: mlx5dv_wr_set_dc_addr(3). Each operation on a DCI needs it except BIND_MW and LOCAL_INV,
// which are carried out locally.
func (b *SendBatch) DCAddr(ah *AH, dctn uint32, key uint64) {
	b.impl.DCAddr(ah.part(), dctn, key, 0)
}

// DCAddrStream is DCAddr for a request of a stream, as SendWR.DCStream names it:
// mlx5dv_wr_set_dc_addr_stream(3). DCAddr uses stream 0. On a DCI without streams, Submit returns
// [ErrNoStreams].
func (b *SendBatch) DCAddrStream(ah *AH, dctn uint32, key uint64, stream uint16) {
	b.impl.DCAddr(ah.part(), dctn, key, stream)
}

// Submit posts the batch: all of it, or nothing if one of its operations is wrong. It returns
// [ErrClosed] after Submit or Abort. The errors are those of [QP.PostSend]. If the kernel
// refuses the doorbell, the batch stays in the queue and is sent with the next one.
func (b *SendBatch) Submit() error {
	if b.q == nil {
		return ErrClosed
	}
	err := b.err
	if err == nil {
		if race.Enabled {
			releasePost(b.q.cfg.SendCQ)
		}
		if err = b.q.impl.Submit(); err != nil {
			err = b.q.orClosed(&b.q.sendGate, err)
		}
	}
	b.end()
	return err
}

// Abort discards the batch. After Submit it does nothing.
func (b *SendBatch) Abort() {
	if b.q == nil {
		return
	}
	if b.err == nil {
		b.q.impl.Abort()
	}
	b.end()
}

func (b *SendBatch) end() {
	if !b.q.single {
		b.q.sq.Unlock()
	} else if b.err == nil { // a batch that began with an error has not replaced q.poster
		b.q.poster = b.q.impl
	}
	b.q, b.impl, b.err = nil, discardOps, ErrClosed
}

// noCopy makes go vet report copies of structs that contain it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
