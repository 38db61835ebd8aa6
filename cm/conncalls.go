package cm

import (
	"context"
	"net/netip"

	"github.com/goverbs/goverbs/uverbs"
)

// This file has the methods of a [Conn] that are those of its id.

// ID returns the id of the connection, for options and values that Conn has no method
// for, such as [ID.SetAckTimeout] or [SyncID.Event]. To close the connection, use
// [Conn.Close] instead of the id's Close.
func (c *Conn) ID() *SyncID { return c.id }

// LocalAddr returns the local address of the connection.
func (c *Conn) LocalAddr() netip.AddrPort { return c.id.LocalAddr() }

// RemoteAddr returns the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.id.RemoteAddr() }

// QP returns the queue pair of the connection, for requests that Conn has no method
// for, such as lists, batches and atomics. It is nil in Options.Prepare.
func (c *Conn) QP() *uverbs.QP { return c.id.QP() }

// PD returns the PD of the queue pair. MRs of other PDs cannot be used on the
// connection.
func (c *Conn) PD() *uverbs.PD { return c.id.PD() }

// Verbs returns the open device of the connection, or nil after Close. Other
// connections share it, and the library closes it.
func (c *Conn) Verbs() *uverbs.Context { return c.id.Verbs() }

// Err returns why the connection has ended, or nil if it has not: [ErrDisconnected]
// if either side has ended it, [uverbs.ErrDeviceGone] if the device was removed, and
// [uverbs.ErrClosed] if neither happened before Close.
func (c *Conn) Err() error { return c.id.Err() }

// Disconnected returns a channel that is closed when the connection has ended, for
// any reason. [Conn.Err] returns the reason.
func (c *Conn) Disconnected() <-chan struct{} { return c.id.Disconnected() }

// Disconnect ends the connection and waits until the peer has confirmed it or does
// not reply in time. Posted requests are flushed: [Conn.RecvComp] and
// [Conn.SendComp] still return their completions. It returns context.Cause(ctx) if
// ctx ends first. Otherwise the errors are those of [SyncID.Disconnect].
func (c *Conn) Disconnect(ctx context.Context) error { return c.id.Disconnect(ctx) }

// AllocMsgs allocates n bytes outside of the Go heap and registers them for sends
// and receives, as the target of this side's READs and as the source of its WRITEs.
// The caller closes the MR. AllocMsgs returns [uverbs.ErrClosed] after Close.
// Otherwise the errors are those of [ID.AllocMsgs].
func (c *Conn) AllocMsgs(n int) (*uverbs.MR, error) { return c.id.AllocMsgs(n) }

// AllocRead allocates n bytes outside of the Go heap and registers them for READs by
// the peer, which needs MR.Addr and MR.RKey. The caller closes the MR. The errors are
// those of [Conn.AllocMsgs].
func (c *Conn) AllocRead(n int) (*uverbs.MR, error) { return c.id.AllocRead(n) }

// AllocWrite allocates n bytes outside of the Go heap and registers them for WRITEs
// by the peer, which needs MR.Addr and MR.RKey. The caller closes the MR. The errors
// are those of [Conn.AllocMsgs].
func (c *Conn) AllocWrite(n int) (*uverbs.MR, error) { return c.id.AllocWrite(n) }

// RegMsgs registers b for sends and receives, as the target of this side's READs and
// as the source of its WRITEs. The memory stays pinned until the caller closes the
// MR. RegMsgs returns [uverbs.ErrClosed] after Close. Otherwise the errors are those
// of [ID.RegMsgs].
func (c *Conn) RegMsgs(b []byte) (*uverbs.MR, error) { return c.id.RegMsgs(b) }

// RegRead registers b for READs by the peer, which needs MR.Addr and MR.RKey. The
// memory stays pinned until the caller closes the MR. The errors are those of
// [Conn.RegMsgs].
func (c *Conn) RegRead(b []byte) (*uverbs.MR, error) { return c.id.RegRead(b) }

// RegWrite registers b for WRITEs by the peer, which needs MR.Addr and MR.RKey. The
// memory stays pinned until the caller closes the MR. The errors are those of
// [Conn.RegMsgs].
func (c *Conn) RegWrite(b []byte) (*uverbs.MR, error) { return c.id.RegWrite(b) }

// PostRecv posts a receive for the next message, which is written to the memory of
// sges in order. Options.Setup posts the first receives, before the peer can send.
// When a message has arrived, [Conn.RecvComp] returns wrID as WC.WRID. PostRecv
// returns [uverbs.ErrClosed] after Close. Otherwise the errors are those of
// [ID.PostRecv].
func (c *Conn) PostRecv(wrID uint64, sges ...uverbs.SGE) error { return c.id.PostRecv(wrID, sges...) }

// PostSend sends a message, the memory of sges in order. With [uverbs.Signaled],
// [Conn.SendComp] returns wrID as WC.WRID when the peer has received it. Until then
// the memory must not change. PostSend returns [uverbs.ErrState] before the
// connection is established, and [ErrDisconnected] after its end. Otherwise the
// errors are those of [ID.PostSend].
func (c *Conn) PostSend(wrID uint64, f uverbs.SendFlags, sges ...uverbs.SGE) error {
	return c.id.PostSend(wrID, f, sges...)
}

// PostSendInline sends a message that is copied into the queue at once. The data need
// not be registered, and may be changed when PostSendInline returns.
// Options.QP.MaxInline limits its size. The errors are those of [Conn.PostSend].
func (c *Conn) PostSendInline(wrID uint64, f uverbs.SendFlags, data []byte) error {
	return c.id.PostSendInline(wrID, f, data)
}

// PostRead reads the peer's memory at raddr into the memory of sges. The peer has
// registered its memory with AllocRead or RegRead, and rkey is its key.
// [Conn.SendComp] returns the completion. The errors are those of [Conn.PostSend].
func (c *Conn) PostRead(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32, sges ...uverbs.SGE) error {
	return c.id.PostRead(wrID, f, raddr, rkey, sges...)
}

// PostWrite writes the memory of sges to the peer's memory at raddr. The peer has
// registered its memory with AllocWrite or RegWrite, and rkey is its key. The peer is
// not notified. The errors are those of [Conn.PostSend].
func (c *Conn) PostWrite(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32, sges ...uverbs.SGE) error {
	return c.id.PostWrite(wrID, f, raddr, rkey, sges...)
}

// PostWriteInline is PostWrite of data that is copied into the queue at once. The
// errors are those of [Conn.PostSend].
func (c *Conn) PostWriteInline(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32, data []byte) error {
	return c.id.PostWriteInline(wrID, f, raddr, rkey, data)
}

// PostWriteImm is PostWrite with immediate data. It consumes a receive of the peer,
// which completes with WC.Imm and with the number of bytes written as WC.ByteLen. The
// errors are those of [Conn.PostSend].
func (c *Conn) PostWriteImm(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey, imm uint32,
	sges ...uverbs.SGE) error {
	return c.id.PostWriteImm(wrID, f, raddr, rkey, imm, sges...)
}

// SendComp waits for the completion of a send, READ or WRITE and returns it. Only
// requests with [uverbs.Signaled] have completions, or all with
// Options.QP.SignalAll. If the status of the completion is an error, SendComp also
// returns it as an error.
//
// After the end of the connection, the error of a flushed request matches the error of
// [Conn.Err], usually [ErrDisconnected], and [uverbs.WCWRFlushErr]. Once the queue is
// empty, SendComp returns the error of Conn.Err without a completion. It returns
// context.Cause(ctx) if ctx ends first, [ErrSharedCQ] if the caller has created the
// completion queue, and [uverbs.ErrClosed] after Close. Otherwise the errors are
// those of [ID.SendComp].
func (c *Conn) SendComp(ctx context.Context) (uverbs.WC, error) { return c.id.SendComp(ctx) }

// RecvComp waits for the next message and returns the completion of its receive, with
// WC.WRID as posted and the size of the message as WC.ByteLen. Otherwise it is like
// [Conn.SendComp]. The errors are those of [Conn.SendComp].
func (c *Conn) RecvComp(ctx context.Context) (uverbs.WC, error) { return c.id.RecvComp(ctx) }
