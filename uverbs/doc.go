// Package uverbs is for programs that use RDMA devices themselves: it implements the verbs, without
// libibverbs. It opens /dev/infiniband/uverbs*, issues the kernel's commands itself, and posts to and
// polls the device's queues through the providers that a program links. Package rdma has messages and
// connections that are simpler to use.
//
//	import (
//		_ "github.com/goverbs/goverbs/provider/all"
//		"github.com/goverbs/goverbs/uverbs"
//	)
//
//	dev, err := uverbs.Open("") // the first device with an active port
//	...
//	defer dev.Close() // closes what was created on it
//	pd, err := dev.AllocPD()
//	...
//	mr, err := pd.RegMR([]byte("hello"), 0)
//	...
//	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: 2})
//	...
//	qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
//	...
//	err = qp.Handshake(ctx, conn) // conn is a TCP connection to the peer, which has posted a receive
//	...
//	_, err = qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
//		SGL: []uverbs.SGE{mr.SGE(0, mr.Len())}})
//	...
//	var wc [1]uverbs.WC
//	_, err = cq.PollWait(ctx, wc[:])
//	...
//	err = wc[0].Err()
//
// Names and values follow the man pages: ibv_post_send(3) is [QP.PostSend]. errors.Is finds an
// errno of the kernel.
//
// # Objects
//
// [Open] returns a [Context]. On it a program creates a [PD] (protection domain) and a [CQ]
// (completion queue), and on the PD an [MR] (registered memory), a [QP] (queue pair) and an
// [SRQ] (shared receive queue). An RC QP is connected with [QP.Handshake] over a TCP
// connection, with [QP.Connect] and an [Endpoint] that was received some other way, or step by
// step with [QP.Modify]. After [QP.Ready] a UD QP sends datagrams to any number of peers. Each
// destination is an [AH].
//
// # Lifetime
//
// Objects are closed explicitly. Every Close is idempotent. While an object exists, Close of
// its parents returns [ErrBusy]. [Context.Close] closes all objects of the Context. Registered
// memory stays mapped until the kernel has released it, even if the program drops all
// references to it.
//
// # Concurrency
//
// Any number of goroutines may call any method. A CQ, QP or SRQ that is created with
// SingleGoroutine has no locks, and its configuration says which calls are then restricted to
// one goroutine at a time. Closing an object that others use ends their calls with [ErrClosed].
//
// # Waiting
//
// [CQ.Wait], [CQ.PollWait] and [Context.NextEvent] park the goroutine, occupy no thread, and
// end when their ctx does.
//
// # Errors
//
// An error of the kernel is reported as an [*Error] that describes the cause and the fix.
// Posting and polling return preallocated errors. A failed completion has a [WCStatus], which
// is also an error.
//
// # Environment
//
// GOVERBS_TRACE=1 prints every command to the kernel to standard error. GOVERBS_LEAKS=1 reports
// memory that was dropped without Close.
package uverbs
