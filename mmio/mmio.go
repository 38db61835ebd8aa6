// Package mmio is for providers, and for programs that write rings and registers
// themselves, as those of DevX do with the pages of devx.UAR. It has what Go itself
// does not: barriers between the CPU and a device, and accesses to device registers
// that happen exactly once, at full width and in program order:
//
//	copy(ring, request)                          // memory that the device reads
//	mmio.ToDevice()                              // the request before the record
//	binary.BigEndian.PutUint32(record, producer) // the doorbell record
//	mmio.ToDevice()                              // the record before the register
//	mmio.Store64BE(register, begin)              // the doorbell: its first 8 bytes
//
// Neither sync/atomic nor plain stores are suitable for registers. On amd64 an
// atomic store is a locked exchange, which also reads the register. A plain
// store may be dropped, merged or moved by the compiler. The functions that
// access registers are therefore assembly stubs, and a call to one is also a
// compiler barrier. [Acquire64], [Release32] and [Publish32BE] access ordinary
// memory only, and may be Go code that the compiler inlines. Tests check the
// instructions of all of them in the disassembly.
//
// The barriers have the names and guarantees of rdma-core's
// util/udma_barrier.h, and the register accesses those of util/mmio.h. "Device"
// means an observer on the other side of the bus. For memory shared with the
// kernel or with another thread, such as rxe's rings, use sync/atomic.
//
//	              amd64     arm64
//	ToDevice      -         DMB OSHST
//	FromDevice    LFENCE    DMB OSHLD
//	FlushWrites   SFENCE    DSB ST
//	WCStart       SFENCE    DSB ST
//
// [Doorbell] and [Ring] have the form of mlx5's registers.
//
// All functions except [Ring] are safe for concurrent use. No function checks
// its pointers: they must point into a mapping and be aligned to the width of
// the access.
package mmio

// ToDevice orders earlier stores to memory before later stores, as seen by a
// device: fill in a work request, call ToDevice, then store the doorbell record
// or the doorbell register.
//
// It does not flush write-combining buffers: see [FlushWrites].
//
//go:noescape
func ToDevice()

// FromDevice orders loads of memory that the device writes: load the word that
// marks an entry as valid, call FromDevice, then load the rest of the entry.
//
//go:noescape
func FromDevice()

// FlushWrites flushes earlier write-combining stores, so that they reach the
// device promptly and before any later store. It implies [ToDevice].
//
//go:noescape
func FlushWrites()

// WCStart precedes a sequence of stores to write-combining memory: every earlier
// store, to any type of memory, reaches the device before that sequence. It
// implies [ToDevice].
//
//go:noescape
func WCStart()

// Store8 stores v in an 8-bit register, by one store.
//
//go:noescape
func Store8(reg *uint8, v uint8)

// Store16 stores v in a 16-bit register in the CPU's byte order, by one store.
//
//go:noescape
func Store16(reg *uint16, v uint16)

// Store32 stores v in a 32-bit register in the CPU's byte order, by one store.
//
//go:noescape
func Store32(reg *uint32, v uint32)

// Store64 stores v in a 64-bit register in the CPU's byte order, by one store.
//
//go:noescape
func Store64(reg *uint64, v uint64)

// Store32BE stores v in a big-endian 32-bit register, by one store.
//
//go:noescape
func Store32BE(reg *uint32, v uint32)

// Store64BE stores v in a big-endian 64-bit register, by one store.
//
//go:noescape
func Store64BE(reg *uint64, v uint64)

// Load8 loads an 8-bit register, by one load.
//
//go:noescape
func Load8(reg *uint8) uint8

// Load16 loads a 16-bit register in the CPU's byte order, by one load.
//
//go:noescape
func Load16(reg *uint16) uint16

// Load32 loads a 32-bit register in the CPU's byte order, by one load.
//
//go:noescape
func Load32(reg *uint32) uint32

// Load64 loads a 64-bit register in the CPU's byte order, by one load.
//
//go:noescape
func Load64(reg *uint64) uint64

// Load32BE loads a big-endian 32-bit register, by one load. Register loads are
// not reordered.
//
//go:noescape
func Load32BE(reg *uint32) uint32

// Copy64 copies 64 bytes to write-combining memory in ascending order, by
// stores of at least 16 bytes, so that the CPU can write the block to the bus as
// one burst. dst must be 64-byte aligned. Call [WCStart] before the first block
// and [FlushWrites] after the last.
//
//go:noescape
func Copy64(dst, src *[64]byte)
