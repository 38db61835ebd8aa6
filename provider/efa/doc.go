// Package efa is the provider for Amazon's Elastic Fabric Adapter. Import it for its side effect:
//
//	import _ "github.com/goverbs/goverbs/provider/efa"
//
// It has never run on an adapter. What programs post, and what they poll, is compared with C's libefa
// on a model of the device.
//
// # What an EFA has
//
// QPs are of type SRD or UD: see [uverbs.SRD]. Neither has a peer: [uverbs.QP.Ready] prepares a QP,
// and each request names an AH, a QPN and a Q_Key, which programs exchange by other means, for
// instance as a [uverbs.Endpoint] over TCP. SRD has SEND and SEND_IMM, and READ, WRITE and WRITE_IMM
// if the device supports them. UD has SEND and SEND_IMM. There are no connections, so packages cm,
// rdma and rsocket do not work, no SRQs, no atomics, no memory windows, and CQs cannot be resized.
//
// Every request needs the flag Signaled, or a QP with SignalAll: the post returns
// [uverbs.ErrUnsignaled] otherwise. Other flags are not supported. Inline data is for SENDs, and has
// up to 32 bytes. In ERR, posts return [uverbs.ErrState]; other devices flush such requests. READs
// and WRITEs have one SGE, other requests two, and a receive has at least one, of which up to 65535
// bytes are used. A SEND has up to PortAttr.MaxMsgSize bytes; the device refuses a longer one, with
// [uverbs.WCLocLenErr].
//
// A receive of a UD QP begins with 40 bytes for a GRH. The device says nothing of a GRH in the
// completion, so WCGRH is not set. WC.SLID is the number of the sender's AH, or 0xffff.
//
// # Rings
//
// The send queue is memory of the device. Descriptors of 64 bytes are written to it through
// write-combining memory, and a register gets the number of those posted so far. One doorbell
// announces a limited number of descriptors, so a long list has several. The receive queue is memory
// that the kernel allocates: a receive has a descriptor of 16 bytes for each SGE. A CQ has one or
// more rings of completions, whose phase tells new ones from old. Each QP completes in one of them.
//
// A descriptor has a request id of 16 bits, which its completion returns. Its lower
// bits are an index into a table of the WRIDs, and free ones are reused in the order in which they have
// become free; libefa reuses the last one first. The bits above, one or more, count the QPs that have
// had the QPN, and their moves to RESET; libefa counts the QPs. Poll drops completions with another
// count: they are of a QP that has been closed or emptied. If the id is not outstanding, or no QP has
// had the QPN, Poll returns [uverbs.ErrABI] once, and drops the completion.
//
// # Sources
//
// rdma/efa-abi.h; efa_io_defs.h and efa_io_regs_defs.h of rdma-core for the layouts.
package efa
