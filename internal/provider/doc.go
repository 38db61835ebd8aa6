// Package provider contains what the providers have in common. A provider
// implements the queues of one kernel driver: see
// [github.com/goverbs/goverbs/provider/mlx5] and
// [github.com/goverbs/goverbs/provider/rxe]. Programs import the providers they need for their side
// effect, or all of them through [github.com/goverbs/goverbs/provider/all]. The
// interfaces that providers implement are those of internal/driver, which this
// package instantiates with the types of uverbs.
//
// # Mappings that retire
//
// A goroutine that accesses the rings of a queue with a lock holds the lock, and checks
// there that the queue is open. After Close, Unmap unmaps such rings at once.
//
// Without a lock, and for register pages, another goroutine that has not noticed the
// Close may still write to the memory. So such a [Mapping] ends in two steps.
//
// Retire replaces the memory with zero pages, at the same address. This releases
// the kernel's pages at once. That matters because a mapping keeps the whole kernel
// context alive. Writes to the zero pages have no effect.
//
// The address range is unmapped when the garbage collector then finds the Mapping
// unreachable. Then no goroutine can use it any more.
//
// For this to be safe, code that derives pointers from Bytes must keep the Mapping
// reachable while it uses them. It stores the Mapping next to the pointers and ends
// each use with [runtime.KeepAlive] of the struct that contains both.
package provider
