// Package bnxt_re is the provider for Broadcom's NetXtreme-E adapters of the generations P5 and P7
// (Thor and Thor 2: BCM57502, BCM57504, BCM57508, BCM57608 and BCM58818). Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/bnxt_re"
//
// It has never run on an adapter. What programs post, and what they poll, is compared with C's
// libbnxt_re on a model of the device.
//
// # What an adapter has
//
// QPs are of type RC or UD, with SRQs, and RC has all operations but those of memory windows, FLUSH
// and ATOMIC_WRITE: SEND_INV is not posted, but a peer's is reported. Inline data has up to 96 bytes.
// SRQs cannot be resized. An adapter of another generation is refused with [uverbs.ErrNotSupported].
//
// In ERR the device completes nothing: it reports the end of the QP and which sends have completed
// before, and Poll completes what is in the queues, and what is posted later, with
// [uverbs.WCWRFlushErr]. An event of the CQ is raised for the end only, so a program that waits with
// [uverbs.CQ.WaitEvent] has none for what it posts later. [uverbs.CQ.Wait] notices it.
//
// If the device itself flushes a receive of an SRQ, Poll completes it and the SRQ has room for another
// one, as in the kernel's driver. Whether an adapter does so is not known: libbnxt_re has no completion
// for it, and Broadcom's newer one keeps its place in the SRQ.
//
// # Rings
//
// All rings are memory of the process, and consist of slots of 16 bytes. A request has two slots of
// headers and one for each SGE, or its inline data. On P5 each request of a send queue occupies eight
// slots, on P7 as many as it needs. Receives have a fixed size. A send queue of an RC QP is followed
// by a table of PSNs, by which the device finds a request that it must send again: by request, or by
// message if the device says so.
//
// After RESET, the table by message and the epochs of doorbells go on where they were, as in libbnxt_re.
// What an adapter expects is not known: create another QP instead.
//
// All queues share one register of 8 bytes, on a page that a Context maps. A doorbell has the number
// of the queue, the index of the next request, and a bit that changes whenever the index begins
// again. CQs have twice the entries that were asked for, and their doorbell is rung when half of them
// have been polled: the device needs to know only that it may write.
//
// On P7, a doorbell that arms a CQ or an SRQ contains the number of its events, which the kernel counts
// in a page for each. If the driver says that the device's queue of doorbells is filling up, a doorbell
// waits, for up to a tenth of a second; libbnxt_re waits without end.
//
// A completion names its QP by the handle that the create command contained, which is the index of
// a table here, and a pointer in libbnxt_re. A completion of sends says up to which request they have
// completed: it has the number of the next one or, on P7 if there is an error, the slot in which the
// request that failed begins. libbnxt_re reports the error of the oldest one. If a handle or a request
// is not one of the program, Poll returns [uverbs.ErrABI] once, and drops the completion.
//
// Low-latency pushes, which copy a short request to the device with the doorbell, are not used.
//
// # Sources
//
// rdma/bnxt_re-abi.h, and bnxt_re-abi.h of rdma-core for the layouts; the kernel's driver for sizes.
package bnxt_re
