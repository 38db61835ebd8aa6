// Package mmio holds what Go has no words for: barriers between the CPU and a
// device, and stores to device registers that happen once, at their full
// width, in the order written.
//
// sync/atomic does not do for registers: on amd64 its stores are locked
// exchanges, which read the register too. A plain store does not do either:
// the compiler may drop, merge or move it. Each function here is an assembly
// stub, and a call to one is a barrier for the compiler as well. A test reads
// the disassembly of both architectures and asserts the instructions.
//
// The barriers have the names and the promises of rdma-core's
// util/udma_barrier.h, the register access those of util/mmio.h. "Device"
// means an observer on the other side of the bus: for memory shared with the
// kernel or with another thread, as rxe's rings are, use sync/atomic.
//
//	              amd64     arm64
//	ToDevice      -         DMB OSHST
//	FromDevice    LFENCE    DMB OSHLD
//	FlushWrites   SFENCE    DSB ST
//	WCStart       SFENCE    DSB ST
//
// All functions are safe for concurrent use. None checks its pointers: they
// come from a mapping whose bounds were checked when it was made, and have the
// alignment of the access.
package mmio

// ToDevice orders stores to memory before it against stores after it, as a
// device sees them: fill in a work request, ToDevice, then store the doorbell
// record or the register that tells the device of it.
//
// It does not flush write-combining buffers: see [FlushWrites].
//
//go:noescape
func ToDevice()

// FromDevice orders loads of memory that the device writes: load the word
// that says an entry is valid, FromDevice, then load the rest of the entry.
//
//go:noescape
func FromDevice()

// FlushWrites pushes out the write-combining stores before it, so that they
// reach the device before any store after it, and do not linger. It implies
// [ToDevice].
//
//go:noescape
func FlushWrites()

// WCStart goes before a run of stores to write-combining memory: every store
// before it, to whatever type of memory, reaches the device before those of
// the run. It implies [ToDevice].
//
//go:noescape
func WCStart()

// Store32 stores v to a 32-bit register in the CPU's byte order, by one store.
//
//go:noescape
func Store32(reg *uint32, v uint32)

// Store64 stores v to a 64-bit register in the CPU's byte order, by one store.
//
//go:noescape
func Store64(reg *uint64, v uint64)

// Store32BE stores v to a big-endian 32-bit register, by one store.
//
//go:noescape
func Store32BE(reg *uint32, v uint32)

// Store64BE stores v to a big-endian 64-bit register, by one store.
//
//go:noescape
func Store64BE(reg *uint64, v uint64)

// Load32BE loads a big-endian 32-bit register, by one load. Loads of registers
// stay in order.
//
//go:noescape
func Load32BE(reg *uint32) uint32

// Copy64 copies 64 bytes to write-combining memory in ascending order, by
// stores of 16 bytes or more, so that the CPU can hand the block to the bus as
// one burst. dst is 64-byte aligned. Put [WCStart] before the first block and
// [FlushWrites] after the last.
//
//go:noescape
func Copy64(dst, src *[64]byte)
