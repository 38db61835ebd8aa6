package uverbs

import "github.com/goverbs/goverbs/internal/noescape"

// A SendBatch builds several send requests in the queue itself and rings one
// doorbell for all: ibv_wr_start(3). It holds the send queue from
// [QP.StartSend] until Submit or Abort; one of them must be called. It
// belongs to the goroutine that started it.
//
//	b := qp.StartSend()
//	defer b.Abort() // does nothing after Submit; lets go when something panics
//	b.WriteSGE(1, 0, addr, rkey, mr.SGE(0, 64))
//	b.SendInline(2, 0, header)
//	b.SendImm(3, uverbs.Signaled, imm)
//	b.SGE(mr.SGE(64, 100))
//	b.SGE(mr.SGE(512, 28))
//	err := b.Submit()
//
// Each operation takes the buffers that follow it. Nothing is allocated. While a
// batch is open, Close of the QP or its Context and changes of its state wait
// for its end. A SendBatch must not be copied.
type SendBatch struct {
	_    noCopy
	q    *QP
	impl ProviderQP // what takes the operations: nobody when there is an error
	err  error      // why nothing can be added, or ErrClosed after the end
}

// StartSend begins a batch. What is wrong, be it the QP's state, comes from
// Submit.
func (q *QP) StartSend() SendBatch {
	if !q.single {
		q.sq.Lock()
	}
	if g := q.sendGate.Load(); g != gateOpen {
		return SendBatch{q: q, impl: nobody, err: gateErrors[g]}
	}
	q.impl.Begin()
	return SendBatch{q: q, impl: q.impl}
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

// CompareSwap adds an atomic COMPARE_SWAP of the 8 bytes at raddr. One SGE of 8
// bytes, which must follow, takes what was there.
func (b *SendBatch) CompareSwap(wrID uint64, f SendFlags, raddr uint64, rkey uint32, compare, swap uint64) {
	b.impl.Op(OpCompareSwap, f, wrID, raddr, rkey, 0)
	b.impl.Atomic(compare, swap)
}

// FetchAdd adds an atomic FETCH_ADD of the 8 bytes at raddr. One SGE of 8
// bytes, which must follow, takes what was there.
func (b *SendBatch) FetchAdd(wrID uint64, f SendFlags, raddr uint64, rkey uint32, add uint64) {
	b.impl.Op(OpFetchAdd, f, wrID, raddr, rkey, 0)
	b.impl.Atomic(add, 0)
}

// LocalInv adds a LOCAL_INV, which invalidates the key of a type 2 window.
func (b *SendBatch) LocalInv(wrID uint64, f SendFlags, rkey uint32) {
	b.impl.Op(OpLocalInv, f, wrID, 0, 0, rkey)
}

// SendInv adds a SEND that invalidates a key of the peer's.
func (b *SendBatch) SendInv(wrID uint64, f SendFlags, rkey uint32) {
	b.impl.Op(OpSendInv, f, wrID, 0, 0, rkey)
}

// BindMW adds a BIND_MW: what [MWBind] says of w, rkey and r.
func (b *SendBatch) BindMW(wrID uint64, f SendFlags, w *MW, rkey uint32, r MWRange) {
	if b.err != nil {
		return
	}
	b.q.impl.Op(OpBindMW, f, wrID, 0, 0, 0)
	b.q.impl.Bind(ProviderBindOf(&MWBind{MW: w, RKey: rkey, MWRange: r}, b.q))
}

// Flush adds a FLUSH of n bytes at raddr.
func (b *SendBatch) Flush(wrID uint64, f SendFlags, raddr uint64, rkey, n uint32, p Placement, s Selectivity) {
	b.impl.Op(OpFlush, f, wrID, raddr, rkey, 0)
	b.impl.Flush(n, p, s)
}

// AtomicWrite adds an ATOMIC_WRITE of the 8 bytes of value, in host order, to
// raddr.
func (b *SendBatch) AtomicWrite(wrID uint64, f SendFlags, raddr uint64, rkey uint32, value uint64) {
	b.impl.Op(OpAtomicWrite, f, wrID, raddr, rkey, 0)
	b.impl.Atomic(0, value)
}

// SendSGE is Send and SGE in one call, which costs less than two; so do the four
// below. More SGEs may follow, and what else is said of an operation.
func (b *SendBatch) SendSGE(wrID uint64, f SendFlags, s SGE) {
	b.impl.SendSGE(f, wrID, s)
}

// WriteSGE is Write and SGE in one call.
func (b *SendBatch) WriteSGE(wrID uint64, f SendFlags, raddr uint64, rkey uint32, s SGE) {
	b.impl.WriteSGE(f, wrID, raddr, rkey, s)
}

// ReadSGE is Read and SGE in one call.
func (b *SendBatch) ReadSGE(wrID uint64, f SendFlags, raddr uint64, rkey uint32, s SGE) {
	b.impl.ReadSGE(f, wrID, raddr, rkey, s)
}

// SendInline is Send and Inline in one call.
func (b *SendBatch) SendInline(wrID uint64, f SendFlags, data []byte) {
	b.impl.SendInline(f, wrID, noescape.Bytes(data))
}

// WriteInline is Write and Inline in one call.
func (b *SendBatch) WriteInline(wrID uint64, f SendFlags, raddr uint64, rkey uint32, data []byte) {
	b.impl.WriteInline(f, wrID, raddr, rkey, noescape.Bytes(data))
}

// SGE adds a buffer to the operation added last.
func (b *SendBatch) SGE(s SGE) {
	b.impl.SGE(s)
}

// Inline makes data, which is copied, the payload of the operation added last.
func (b *SendBatch) Inline(data []byte) {
	b.impl.Inline(noescape.Bytes(data))
}

// UDAddr addresses the operation added last, on a UD QP: what SendWR says by
// AH, QPN and QKey. Each of its operations needs it.
func (b *SendBatch) UDAddr(ah *AH, qpn, qkey uint32) {
	b.impl.UDAddr(ah, qpn, qkey)
}

// RemoteSRQ says which XRC SRQ of the peer the operation added last is for, on an
// XRCSend QP: what SendWR says by RemoteSRQN. Each of its operations needs it,
// but BIND_MW and LOCAL_INV, which do not leave the device.
func (b *SendBatch) RemoteSRQ(srqn uint32) {
	b.impl.RemoteSRQ(srqn)
}

// Submit posts the batch: all of it, or nothing when something in it was
// wrong. The errors are those of [QP.PostSend]; when the kernel refuses the
// doorbell, the batch is in the queue and goes out with the next one.
// [ErrClosed] after Submit or Abort.
func (b *SendBatch) Submit() error {
	if b.q == nil {
		return ErrClosed
	}
	err := b.err
	if err == nil {
		if err = b.q.impl.Submit(); err != nil {
			err = b.q.orClosed(&b.q.sendGate, err)
		}
	}
	b.end()
	return err
}

// Abort drops the batch. After Submit it does nothing.
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
	}
	b.q, b.impl, b.err = nil, nobody, ErrClosed
}

// noCopy makes vet report copies of what contains it.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
