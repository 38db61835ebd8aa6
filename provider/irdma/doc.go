// Package irdma is the provider for Intel's E810 and E82x adapters in RoCEv2 mode, which is generation 2
// of the kernel's driver irdma. Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/irdma"
//
// It has never run on an adapter. What programs post, and what they poll, is compared with C's libirdma on a model of
// the device.
//
// # What an adapter has
//
// QPs are of type RC or UD. RC has all operations but atomics, FLUSH, ATOMIC_WRITE and those that bind memory windows.
// There are no SRQs. A message has up to 2^31-1 bytes, and so has a receive, all SGEs together. Adapters of another
// generation, and those in iWARP mode, are refused with [uverbs.ErrNotSupported].
//
// The driver has no way back from RESET: after it, Modify to INIT is refused by the kernel. Create another QP instead.
//
// # Rings
//
// All rings are memory of the process, which is registered with the kernel like an MR, with a type of
// its own. Requests consist of quanta of 32 bytes, up to eight, which are within one chunk of the ring.
// If one does not fit in the rest of a chunk, requests that do nothing (NOP) fill that. The fourth word
// of each quantum has a valid bit, which has another value in each round of the ring. The device may
// read a request when that of its first quantum is right, even without a doorbell, so these bits are
// set last, and those of a batch when it is submitted. The quanta ahead, a page at a time, are filled
// with ones or zeros so that no data of an earlier round looks valid.
//
// Receives have a fixed size, and no doorbell. A completion has one or two entries of 32 bytes:
// immediate data is in the second. The index up to which entries have been polled is in the CQ's shadow
// area, which the device reads, and so is the word by which a doorbell arms the CQ.
//
// A queue that is flushed has one entry. It remains the next one, and each poll completes a request with
// it, until the queue is empty. The first of them has the error that has ended the QP. As in libirdma,
// that is the oldest request whose completion has not been polled, although sends before the one that
// failed may have succeeded without a completion. What is posted to an empty queue after that is flushed
// with a command.
//
// A completion names its QP by the handle that the create command contained, which is the index of a
// table here, and a pointer in libirdma. If a handle or a request is not one of the program, Poll
// returns [uverbs.ErrABI] once, and drops the completion.
//
// Push pages, by which a program copies requests to the device, are not used.
//
// # Sources
//
// rdma/irdma-abi.h, and irdma of rdma-core for the layouts; the kernel's driver for sizes.
package irdma
