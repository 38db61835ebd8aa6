package mmio

// A Doorbell notifies a device of new work. It has two parts: a doorbell record
// in memory, and a register that makes the device look for new work when it is
// written. It must not be used concurrently.
type Doorbell struct {
	// Record is the doorbell record: the number of work requests posted so far,
	// big-endian.
	Record *uint32
	// Reg is the register. Half is the byte offset in it of the next write, and
	// Ring XORs Half with Toggle after each write, so that writes alternate
	// between two buffers. Toggle is 0 if the register has one buffer.
	Reg    *uint64
	Half   uint64
	Toggle uint64
	// Ring is the first block of the queue, and End is the address after the
	// last block.
	Ring, End *[64]byte
}

// Ring notifies the device of the work requests posted so far. It stores count
// in the doorbell record and then writes the register. If blocks is 0, it writes
// the first 8 bytes of wqe. Otherwise it copies that many 64-byte blocks,
// starting at wqe and wrapping at the end of the queue, so that the device
// receives the work request itself through the write-combining register.
//
// Ring contains all barriers: the work requests are visible before the record,
// the record before the register write, and the register write is flushed before
// any later store.
//
//go:noescape
func Ring(d *Doorbell, count uint32, wqe *[64]byte, blocks uint64)
