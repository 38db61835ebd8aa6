package siw

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// The fields of the second word of an element. The RKey is in its upper half.
const (
	countAt = 16
	opAt    = 24
	rkeyAt  = 32
)

// maxInline is the room for inline data, which is in the place of all SGEs but the first.
const maxInline = 16 * (uapi.SIW_MAX_SGE - 1)

const allFlags = uverbs.Fence | uverbs.Signaled | uverbs.Solicited

// An operation is what siw knows of a uverbs.Opcode.
type operation struct {
	there  bool
	traits driver.OpTraits
	code   uint64
	inline bool
}

var operations = func() (all [driver.Opcodes]operation) {
	for op, o := range map[uverbs.Opcode]operation{
		uverbs.OpWrite:   {code: uapi.SIW_OP_WRITE, inline: true},
		uverbs.OpRead:    {code: uapi.SIW_OP_READ},
		uverbs.OpSend:    {code: uapi.SIW_OP_SEND, inline: true},
		uverbs.OpSendInv: {code: uapi.SIW_OP_SEND_REMOTE_INV},
	} {
		o.there, o.traits = true, driver.OperationOf(op).Traits
		all[op] = o
	}
	return all
}()

// flagsOf returns the flags of an element.
func flagsOf(f uverbs.SendFlags) (v uint64) {
	if f&uverbs.Signaled != 0 {
		v |= uapi.SIW_WQE_SIGNALLED
	}
	if f&uverbs.Solicited != 0 {
		v |= uapi.SIW_WQE_SOLICITED
	}
	if f&uverbs.Fence != 0 {
		v |= uapi.SIW_WQE_READ_FENCE
	}
	return v
}

// operation returns the operation of a request, or why siw does not have it. The kernel would leave such a request at
// the head of the queue, and all later ones behind it.
func (q *qp) operation(op uverbs.Opcode, f uverbs.SendFlags) (*operation, error) {
	if op >= driver.Opcodes || f&^allFlags != 0 || !operations[op].there {
		return nil, provider.Refusal(uverbs.RC, op, f)
	}
	if op == uverbs.OpRead {
		switch {
		case !q.reads:
			return nil, uverbs.ErrRdAtomic
		case f&uverbs.Fence != 0:
			return nil, uverbs.ErrOpNotSupported
		}
	}
	return &operations[op], nil
}

// encode writes a request to element i.
func (q *qp) encode(i uint32, wr *uverbs.SendWR) error {
	o, err := q.operation(wr.Opcode, wr.Flags)
	if err != nil {
		return err
	}
	if err := q.check(o, wr); err != nil {
		return err
	}
	if q.sq.full(i) {
		return uverbs.ErrQueueFull
	}
	e := q.sq.element(i)
	sges, total := setSGEs(e, 3, wr.SGL)
	if total > uverbs.MaxMessage {
		return uverbs.ErrRange
	}
	word := valid | q.always | flagsOf(wr.Flags) | o.code<<opAt
	switch {
	case len(wr.Inline) > 0:
		e[4] = uint64(len(wr.Inline)) // of the first SGE
		copy(bytesOf(e[5:]), wr.Inline)
		word |= uapi.SIW_WQE_INLINE
		sges = 1
	case wr.Opcode == uverbs.OpRead && sges == 0: // the kernel reads its SGE even if there is none
		e[3], e[4] = 0, 0
		sges = 1
	}
	word |= uint64(sges) << countAt
	e[0], e[2] = wr.WRID, 0
	switch {
	case o.traits&driver.OpRemote != 0:
		e[2] = wr.RemoteAddr
		word |= uint64(wr.RKey) << rkeyAt
	case o.traits&driver.OpKey != 0:
		word |= uint64(wr.InvalidateRKey) << rkeyAt
	}
	q.sq.pending[i&q.sq.mask] = word
	return nil
}

// check checks the data of a request.
func (q *qp) check(o *operation, wr *uverbs.SendWR) error {
	most := q.maxSGE
	if wr.Opcode == uverbs.OpRead {
		most = min(most, 1) // iWARP sends the key and the address of the one
	}
	switch {
	case len(wr.Inline) == 0 && len(wr.SGL) <= most:
		return nil
	case len(wr.Inline) == 0:
		return uverbs.ErrTooManySGEs
	case o.traits&driver.OpScatter != 0 || len(wr.SGL) > 0:
		return uverbs.ErrMalformed
	case !o.inline:
		return uverbs.ErrOpNotSupported
	case len(wr.Inline) > q.maxInline:
		return uverbs.ErrInlineTooLong
	}
	return nil
}

// submit publishes the elements before next and rings the doorbell. It does nothing if there are none.
func (q *qp) submit(next uint32) error {
	if next == q.sq.cur {
		return nil
	}
	q.sq.publish(next)
	if q.sq.ended.Load() { // the CQ takes them from the ring
		return nil
	}
	if err := q.ring(); err != nil {
		return q.bellError(err)
	}
	return nil
}

// PostSend implements driver.QP.
//
// If the kernel refuses the doorbell, the requests are already in the ring and stay
// there. The error is a *uverbs.Error and n includes the requests.
func (q *qp) PostSend(wrs []uverbs.SendWR) (n int, err error) {
	next := q.sq.cur
	for ; n < len(wrs); n++ {
		if err = q.encode(next, &wrs[n]); err != nil {
			break
		}
		next++
	}
	if bell := q.submit(next); bell != nil {
		err = bell
	}
	runtime.KeepAlive(q)
	return n, err
}
