// Package uverbs is RDMA verbs without libibverbs: it opens
// /dev/infiniband/uverbs*, issues the kernel's commands itself, and posts and
// polls in the device's queues through the providers that a program links.
//
//	import (
//		_ "github.com/goverbs/goverbs/provider/all"
//		"github.com/goverbs/goverbs/uverbs"
//	)
//
// Names and values are those of the man pages: ibv_post_send(3) is
// [QP.PostSend], and an errno of the kernel is found by errors.Is.
//
// # Objects
//
// [Open] gives a [Context]; from it come a [PD] (protection domain), a [CQ]
// (completion queue) and, from the PD, an [MR] (registered memory), a [QP]
// (queue pair) and an [SRQ] (shared receive queue). An RC QP is connected by
// [QP.Handshake] over a TCP connection, by [QP.Connect] with an [Endpoint] that
// came some other way, or step by step by [QP.Modify]. A UD QP sends datagrams
// to any number of peers after [QP.Ready], each named by an [AH].
//
// # Lifetime
//
// Every Close is explicit and idempotent. A child holds its parents, which
// refuse Close with [ErrBusy] while it lives; [Context.Close] closes everything
// under it. Registered memory stays where it is until the kernel has let go of
// it, whatever the program drops.
//
// # Concurrency
//
// Every method may be called from any number of goroutines. A CQ, QP or SRQ made
// with SingleGoroutine leaves its locks out and says what belongs to one
// goroutine then. Close of anything while others use it ends their calls with
// [ErrClosed].
//
// # Waiting
//
// [CQ.Wait], [CQ.PollWait] and [Context.NextEvent] park the goroutine, hold no
// thread and end with their context.
//
// # Errors
//
// What the kernel refuses comes as an [*Error] that says why and what mends it.
// The posting path returns errors that were made once. A failed completion is a
// [WCStatus], which is an error too.
//
// # Environment
//
// GOVERBS_TRACE=1 prints every command to the kernel to standard error.
// GOVERBS_LEAKS=1 reports memory that was dropped without Close.
package uverbs
