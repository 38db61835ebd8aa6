package mmio

// A Doorbell is where a device hears of new work: a doorbell record in memory,
// which it reads, and a register that makes it look. It belongs to one writer
// at a time.
type Doorbell struct {
	// Record takes the count of what has been posted, big-endian.
	Record *uint32
	// Reg is the register. Half is the offset in it, in bytes, of the part that
	// takes the next write, and Toggle what Half is XORed with after each: 0
	// where the register has one part.
	Reg    *uint64
	Half   uint64
	Toggle uint64
	// Ring is the first block of the queue, and End what lies behind the last.
	Ring, End *[64]byte
}

// Ring tells the device of the work before it: the record gets count, then the
// register the first 8 bytes of wqe, or, when blocks is not 0, so many blocks
// of 64 bytes from wqe on, around the queue's end, by which a write-combining
// register takes a work request itself.
//
// It contains the barriers: work requests are visible before the record, the
// record before the register, and the register is written before anything that
// comes later.
//
//go:noescape
func Ring(d *Doorbell, count uint32, wqe *[64]byte, blocks uint64)
