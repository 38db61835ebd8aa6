package cm

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// This file implements rdma_verbs.h: calls that only need an id. wrID is the context
// of the C calls, which the completion returns as WC.WRID. [uverbs.MR.SGE] returns
// the SGE of a range of memory, and checks the range.

func (id *ID) boundPD(op string) (*uverbs.PD, error) {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	switch {
	case id.isClosed():
		return nil, closed(op, id.describe())
	case id.pd != nil:
		return id.pd, nil
	}
	return nil, invalid(op, id.describe(), notBound)
}

func (id *ID) regMR(b []byte, a uverbs.Access) (*uverbs.MR, error) {
	pd, err := id.boundPD("register memory for")
	if err != nil {
		return nil, err
	}
	return id.trackMR(pd.RegMR(b, a))
}

func (id *ID) allocMR(n int, a uverbs.Access) (*uverbs.MR, error) {
	pd, err := id.boundPD("allocate memory for")
	if err != nil {
		return nil, err
	}
	return id.trackMR(pd.Alloc(n, a))
}

// trackMR records an MR that was created with a method of the id.
func (id *ID) trackMR(mr *uverbs.MR, err error) (*uverbs.MR, error) {
	if s := id.setup.Load(); s != nil && err == nil {
		s.mu.Lock()
		s.mrs = append(s.mrs, mr)
		s.mu.Unlock()
	}
	return mr, err
}

// RegMsgs registers b for sends and receives, as the target of the id's READs and as
// the source of its WRITEs: rdma_reg_msgs(3). The memory stays pinned until the MR
// is closed. RegMsgs returns [uverbs.ErrInvalid] if the id is not bound to a device,
// and [uverbs.ErrClosed] after Close. Otherwise the errors are those of
// [uverbs.PD.RegMR].
func (id *ID) RegMsgs(b []byte) (*uverbs.MR, error) { return id.regMR(b, uverbs.LocalWrite) }

// RegRead registers b for READs by the peer: rdma_reg_read(3). For the target of the
// id's READs use RegMsgs. The errors are those of [ID.RegMsgs].
func (id *ID) RegRead(b []byte) (*uverbs.MR, error) {
	return id.regMR(b, uverbs.LocalWrite|uverbs.RemoteRead)
}

// RegWrite registers b for WRITEs by the peer: rdma_reg_write(3). The errors are
// those of [ID.RegMsgs].
func (id *ID) RegWrite(b []byte) (*uverbs.MR, error) {
	return id.regMR(b, uverbs.LocalWrite|uverbs.RemoteWrite)
}

// AllocMsgs allocates n bytes outside of the Go heap and registers them as RegMsgs
// does. It returns [uverbs.ErrInvalid] if the id is not bound to a device, and
// [uverbs.ErrClosed] after Close. Otherwise the errors are those of
// [uverbs.PD.Alloc].
func (id *ID) AllocMsgs(n int) (*uverbs.MR, error) { return id.allocMR(n, uverbs.LocalWrite) }

// AllocRead allocates n bytes outside of the Go heap and registers them as RegRead
// does: the peer reads them. The errors are those of [ID.AllocMsgs].
func (id *ID) AllocRead(n int) (*uverbs.MR, error) {
	return id.allocMR(n, uverbs.LocalWrite|uverbs.RemoteRead)
}

// AllocWrite allocates n bytes outside of the Go heap and registers them as RegWrite
// does: the peer writes them. The errors are those of [ID.AllocMsgs].
func (id *ID) AllocWrite(n int) (*uverbs.MR, error) {
	return id.allocMR(n, uverbs.LocalWrite|uverbs.RemoteWrite)
}

// qpError returns why the id has no QP or no queue. It acquires id.mu to wait for a
// Close in progress.
func (id *ID) qpError(op string) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() {
		return closed(op, id.describe())
	}
	return ErrNoQP
}

// sendError returns why sends cannot be posted: the connection has ended, or the id
// has no QP.
func (id *ID) sendError() error {
	if err := id.life.err(); err != nil && id.qp.Load() != nil {
		return withOp(opPost, err)
	}
	return id.qpError(opPost)
}

// PostRecv posts a receive for the next message, which is written to the memory of
// sges in order: rdma_post_recv(3) and, for several SGEs, rdma_post_recvv(3).
// Without SGEs, it is for messages without data. PostRecv can be called from
// CreateQP on, before the connection is established, and must be called before the
// peer sends. If the id has an SRQ, from CreateSRQ or QPConfig.SRQ, the receive is
// posted to the SRQ. In a receive of a datagram, the first [uverbs.GRHLen] bytes are
// the GRH. PostRecv returns [ErrNoQP], [uverbs.ErrClosed] after Close, and the
// errors of [uverbs.QP.PostRecv] or [uverbs.SRQ.PostRecv].
func (id *ID) PostRecv(wrID uint64, sges ...uverbs.SGE) error {
	if srq := id.srq.Load(); srq != nil {
		_, err := srq.PostRecv(uverbs.RecvWR{WRID: wrID, SGL: sges})
		return err
	}
	qp := id.qp.Load()
	if qp == nil {
		return id.qpError(opPost)
	}
	_, err := qp.PostRecv(uverbs.RecvWR{WRID: wrID, SGL: sges})
	if err == uverbs.ErrSRQ {
		_, err = qp.SRQ().PostRecv(uverbs.RecvWR{WRID: wrID, SGL: sges})
	}
	return err
}

// errNotConnected is the error of a send that is posted before the connection is
// established.
var errNotConnected = &Error{Op: "post a send", Kind: uverbs.ErrState, Errno: unix.EINVAL,
	Detail: "the id is not connected yet: sends are possible once Dial, Connect or Accept has returned;" +
		" before that, in Options.Setup, post receives"}

// postError converts the error of a post.
func postError(err error) error {
	if err == uverbs.ErrState {
		return errNotConnected
	}
	return err
}

// PostSend sends a message, the memory of sges in order: rdma_post_send(3) and, for
// several SGEs, rdma_post_sendv(3). Without SGEs, the message has no data. PostSend
// returns [uverbs.ErrState] before the connection is established. After its end, it
// returns the error of [ID.Err], usually [ErrDisconnected]. The other errors are
// [ErrNoQP], [uverbs.ErrClosed] after Close, and those of [uverbs.QP.PostSend].
func (id *ID) PostSend(wrID uint64, f uverbs.SendFlags, sges ...uverbs.SGE) error {
	qp := id.sendQP.Load()
	if qp == nil {
		return id.sendError()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: sges})
	return postError(err)
}

// PostSendInline is PostSend of data that is copied into the queue at once:
// rdma_post_send(3) with IBV_SEND_INLINE. The data need not be registered.
// QPConfig.MaxInline limits its size. The errors are those of [ID.PostSend].
func (id *ID) PostSendInline(wrID uint64, f uverbs.SendFlags, data []byte) error {
	qp := id.sendQP.Load()
	if qp == nil {
		return id.sendError()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, Inline: data})
	return postError(err)
}

// PostRead reads the peer's memory at raddr into the memory of sges:
// rdma_post_read(3) and, for several SGEs, rdma_post_readv(3). The errors are those
// of [ID.PostSend].
func (id *ID) PostRead(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32, sges ...uverbs.SGE) error {
	return id.postRDMA(uverbs.OpRead, wrID, f, raddr, rkey, sges, nil)
}

// PostWrite writes the memory of sges to the peer's memory at raddr:
// rdma_post_write(3) and, for several SGEs, rdma_post_writev(3). The errors are
// those of [ID.PostSend].
func (id *ID) PostWrite(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32, sges ...uverbs.SGE) error {
	return id.postRDMA(uverbs.OpWrite, wrID, f, raddr, rkey, sges, nil)
}

// PostWriteInline is PostWrite of data that is copied into the queue at once. The
// errors are those of [ID.PostSend].
func (id *ID) PostWriteInline(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32, data []byte) error {
	return id.postRDMA(uverbs.OpWrite, wrID, f, raddr, rkey, nil, data)
}

// PostWriteImm is PostWrite with immediate data. It consumes a receive of the peer,
// which completes with WC.Imm and with the number of bytes written as ByteLen. The
// errors are those of [ID.PostSend].
func (id *ID) PostWriteImm(wrID uint64, f uverbs.SendFlags, raddr uint64, rkey, imm uint32, sges ...uverbs.SGE) error {
	qp := id.sendQP.Load()
	if qp == nil {
		return id.sendError()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpWriteImm, Flags: f, SGL: sges,
		RemoteAddr: raddr, RKey: rkey, Imm: imm})
	return postError(err)
}

func (id *ID) postRDMA(op uverbs.Opcode, wrID uint64, f uverbs.SendFlags, raddr uint64, rkey uint32,
	sges []uverbs.SGE, data []byte) error {
	qp := id.sendQP.Load()
	if qp == nil {
		return id.sendError()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f, SGL: sges, Inline: data,
		RemoteAddr: raddr, RKey: rkey})
	return postError(err)
}

// UDQKey is the Q_Key of datagrams between ids of PSUDP: RDMA_UDP_QKEY.
const UDQKey = 0x01234567

// PostUDSend sends a datagram to the QP of another id of PSUDP: rdma_post_ud_send(3).
// The address and the QPN are in the event that follows Connect or JoinMulticast, or
// come from the GRH of a received datagram. The errors are those of [ID.PostSend].
func (id *ID) PostUDSend(wrID uint64, f uverbs.SendFlags, ah *uverbs.AH, qpn uint32, sges ...uverbs.SGE) error {
	return id.postUD(wrID, f, ah, qpn, sges, nil)
}

// PostUDSendInline is PostUDSend of data that is copied into the queue at once. The
// errors are those of [ID.PostSend].
func (id *ID) PostUDSendInline(wrID uint64, f uverbs.SendFlags, ah *uverbs.AH, qpn uint32, data []byte) error {
	return id.postUD(wrID, f, ah, qpn, nil, data)
}

func (id *ID) postUD(wrID uint64, f uverbs.SendFlags, ah *uverbs.AH, qpn uint32, sges []uverbs.SGE, data []byte) error {
	qp := id.sendQP.Load()
	if qp == nil {
		return id.sendError()
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: sges, Inline: data,
		AH: ah, QPN: qpn, QKey: UDQKey})
	return postError(err)
}

// SendComp waits for the completion of a send, READ or WRITE and returns it:
// rdma_get_send_comp(3). A waiting call does not block a thread. If the status of
// the completion is an error, SendComp also returns it as an error. Only signaled
// requests have completions, or all with QPConfig.SignalAll.
//
// After the end of the connection, the error of a flushed request matches both the
// error of [ID.Err], usually [ErrDisconnected], and [uverbs.WCWRFlushErr]. Once the
// queue is empty, SendComp returns the error of ID.Err without a completion. It
// returns context.Cause(ctx) if ctx ends first, [ErrNoQP] before CreateQP,
// [ErrSharedCQ] if the caller has created the queue, and [uverbs.ErrClosed] after
// Close. If the QP is closed, it ends as [uverbs.CQ.Wait] does.
func (id *ID) SendComp(ctx context.Context) (uverbs.WC, error) {
	return id.completion(ctx, id.ownSendCQ.Load(), id.sendCQ.Load())
}

// RecvComp waits for the next message: rdma_get_recv_comp(3). Otherwise it is like
// SendComp. The errors are those of [ID.SendComp].
func (id *ID) RecvComp(ctx context.Context) (uverbs.WC, error) {
	return id.completion(ctx, id.ownRecvCQ.Load(), id.recvCQ.Load())
}

func (id *ID) completion(ctx context.Context, own, used *uverbs.CQ) (uverbs.WC, error) {
	switch {
	case used == nil:
		return uverbs.WC{}, id.qpError(opWait)
	case own == nil:
		return uverbs.WC{}, ErrSharedCQ
	}
	var wcs [1]uverbs.WC
	if _, err := own.PollWait(ctx, wcs[:]); err != nil {
		return uverbs.WC{}, id.waitError(ctx, err)
	}
	if err := wcs[0].Err(); err != nil {
		return wcs[0], id.completionError(own, wcs[0].Status, err)
	}
	return wcs[0], nil
}

// waitError returns the error of a wait for a completion: why the id has ended, or err with the name of the id.
func (id *ID) waitError(ctx context.Context, err error) error {
	var own *Error
	switch {
	case errors.As(err, &own):
		return err
	case ctxerr.Is(ctx, err):
		return ended(ctx, opWait, id.name())
	}
	return operationError(opWait, id.name(), err)
}
