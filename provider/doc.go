// Package provider is the toolbox of the packages under it, each of which
// knows the queues of one kernel driver. Programs do not import it: they
// import the providers they want for their side effect, or all of them by
// [github.com/goverbs/goverbs/provider/all]. The interface that a provider
// implements is in package uverbs, in provider.go.
//
// # Mappings that retire
//
// A ring or a register page may be written by a goroutine that has not yet
// heard of the object's Close. So a [Mapping] ends in two steps. Retire puts
// zero pages over it in place: the kernel's pages are let go at once, which
// matters because a live mapping keeps the whole kernel context alive, and a
// straggler writes to memory that nobody reads. The address range itself is
// given back when the garbage collector finds the Mapping unreachable, which is
// when no straggler can be left.
//
// For that to hold, whoever derives pointers from Bytes keeps the Mapping
// reachable while it uses them: it holds the Mapping beside the pointers and
// ends each use with [runtime.KeepAlive] of the holder.
package provider
