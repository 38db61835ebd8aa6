package provider

import (
	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A Writer is the send queue of a [Batch]. Its methods build a request, which Finish writes to the ring.
type Writer interface {
	// Start begins a request.
	Start(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) error
	AddSGE(s uverbs.SGE) error
	// SetInline sets the data of the request, which is not empty. The queue copies it.
	SetInline(data []byte) error
	Address(ah *driver.AH, qpn, qkey uint32) error
	// SetOperands sets those of an atomic.
	SetOperands(compareAdd, swap uint64) error
	Finish() error
	// Announce makes the device execute what has been finished, and Drop removes it from the ring.
	Announce() error
	Drop()
}

// A Batch has the methods of driver.QP for batches of a device whose QPs are of type RC or UD, without memory windows,
// FLUSH and ATOMIC_WRITE.
type Batch struct {
	w    Writer
	open bool  // a request has been started
	err  error // the first error
}

// Use sets the queue.
func (b *Batch) Use(w Writer) { b.w = w }

// Begin implements driver.QP.
func (b *Batch) Begin() { b.Abort() }

// Abort forgets the requests.
func (b *Batch) Abort() {
	b.w.Drop()
	b.open, b.err = false, nil
}

// end ends the request that was added last.
func (b *Batch) end() {
	if b.err == nil && b.open {
		b.err, b.open = b.w.Finish(), false
	}
}

// Op implements driver.QP.
func (b *Batch) Op(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey, imm uint32) {
	b.end()
	if b.err == nil {
		b.err = b.w.Start(op, f, wrID, raddr, rkey, imm)
		b.open = b.err == nil
	}
}

// missing reports whether there is no request to complete, which is an error.
func (b *Batch) missing() bool {
	if !b.open {
		b.fail(uverbs.ErrMalformed)
	}
	return b.err != nil
}

// SGE implements driver.QP.
func (b *Batch) SGE(s uverbs.SGE) {
	if !b.missing() {
		b.err = b.w.AddSGE(s)
	}
}

// Inline sets the last request's data. It may be called once. Empty data is the same as no call.
func (b *Batch) Inline(data []byte) {
	if !b.missing() && len(data) > 0 {
		b.err = b.w.SetInline(data)
	}
}

// UDAddr implements driver.QP.
func (b *Batch) UDAddr(ah *driver.AH, qpn, qkey uint32) {
	if !b.missing() {
		b.err = b.w.Address(ah, qpn, qkey)
	}
}

// Atomic implements driver.QP.
func (b *Batch) Atomic(compareAdd, swap uint64) {
	if !b.missing() {
		b.err = b.w.SetOperands(compareAdd, swap)
	}
}

// OpSGE implements driver.QP.
func (b *Batch) OpSGE(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, s uverbs.SGE) {
	b.Op(op, f, wrID, raddr, rkey, 0)
	b.SGE(s)
}

// OpInline implements driver.QP.
func (b *Batch) OpInline(op uverbs.Opcode, f uverbs.SendFlags, wrID, raddr uint64, rkey uint32, data []byte) {
	b.Op(op, f, wrID, raddr, rkey, 0)
	b.Inline(data)
}

// fail records an error.
func (b *Batch) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

// Bind refuses: the device does not have the operation.
func (b *Batch) Bind(driver.Bind, error) { b.fail(uverbs.ErrMalformed) }

// Flush is like Bind.
func (b *Batch) Flush(uint32, uint8, uint8) { b.fail(uverbs.ErrMalformed) }

// RemoteSRQ refuses: the device has no XRC.
func (b *Batch) RemoteSRQ(uint32) { b.fail(uverbs.ErrQPType) }

// DCAddr refuses: the device has no DC.
func (b *Batch) DCAddr(*driver.AH, uint32, uint64, uint16) { b.fail(uverbs.ErrQPType) }

// Submit announces the requests.
func (b *Batch) Submit() error {
	b.end()
	if err := b.err; err != nil {
		b.Abort()
		return err
	}
	return b.w.Announce()
}
