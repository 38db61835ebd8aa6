package cm

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// This file is rdma_verbs.h: the calls that need nothing but an id. wrID is the
// context of the C calls: it comes back as WC.WRID. Memory is named by
// [uverbs.MR.SGE], which checks the range.

func (i *ID) needPD(op string) (*uverbs.PD, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.closed:
		return nil, closed(op, i.describe())
	case i.pd != nil:
		return i.pd, nil
	}
	return nil, invalid(op, i.describe(), "the id is not bound to a device: Bind it to a device's address, or resolve the peer's first")
}

func (i *ID) reg(b []byte, a uverbs.Access) (*uverbs.MR, error) {
	pd, err := i.needPD("register memory for")
	if err != nil {
		return nil, err
	}
	return pd.RegMR(b, a)
}

func (i *ID) alloc(n int, a uverbs.Access) (*uverbs.MR, error) {
	pd, err := i.needPD("allocate memory for")
	if err != nil {
		return nil, err
	}
	return pd.Alloc(n, a)
}

// RegMsgs registers the caller's bytes for sends and receives, and as the
// target of the id's own READs and the source of its WRITEs: rdma_reg_msgs(3).
// They stay pinned until the MR is closed. [uverbs.ErrInvalid] for an id that
// is not bound to a device, [uverbs.ErrClosed] after Close; else the errors are
// those of [uverbs.PD.RegMR].
func (i *ID) RegMsgs(b []byte) (*uverbs.MR, error) { return i.reg(b, uverbs.LocalWrite) }

// RegRead registers the caller's bytes for READs of the peer: rdma_reg_read(3).
// The errors are those of [ID.RegMsgs].
func (i *ID) RegRead(b []byte) (*uverbs.MR, error) {
	return i.reg(b, uverbs.LocalWrite|uverbs.RemoteRead)
}

// RegWrite registers the caller's bytes for WRITEs of the peer:
// rdma_reg_write(3). The errors are those of [ID.RegMsgs].
func (i *ID) RegWrite(b []byte) (*uverbs.MR, error) {
	return i.reg(b, uverbs.LocalWrite|uverbs.RemoteWrite)
}

// AllocMsgs is RegMsgs of n fresh bytes outside of the Go heap.
// [uverbs.ErrInvalid] for an id that is not bound to a device,
// [uverbs.ErrClosed] after Close; else the errors are those of
// [uverbs.PD.Alloc].
func (i *ID) AllocMsgs(n int) (*uverbs.MR, error) { return i.alloc(n, uverbs.LocalWrite) }

// AllocRead is RegRead of n fresh bytes outside of the Go heap. The errors are
// those of [ID.AllocMsgs].
func (i *ID) AllocRead(n int) (*uverbs.MR, error) {
	return i.alloc(n, uverbs.LocalWrite|uverbs.RemoteRead)
}

// AllocWrite is RegWrite of n fresh bytes outside of the Go heap. The errors
// are those of [ID.AllocMsgs].
func (i *ID) AllocWrite(n int) (*uverbs.MR, error) {
	return i.alloc(n, uverbs.LocalWrite|uverbs.RemoteWrite)
}

// noQP says why the id has no QP, or no queue. Who lost a race with Close waits
// for it to be through.
func (i *ID) noQP(op string) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return closed(op, i.describe())
	}
	return ErrNoQP
}

// PostRecv posts a buffer for the next message to arrive: rdma_post_recv(3). It
// may be called before the connection stands, from CreateQP on, and must have
// been before the peer sends. On an id with an SRQ it goes to the SRQ. A
// datagram fills it from [uverbs.GRHLen] on: the first 40 bytes are the GRH's.
// The errors: [ErrNoQP], [uverbs.ErrClosed] after Close, and those of
// [uverbs.QP.PostRecv] or [uverbs.SRQ.PostRecv].
func (i *ID) PostRecv(wrID uint64, sge uverbs.SGE) error {
	if srq := i.srq.Load(); srq != nil {
		_, err := srq.PostRecv(uverbs.RecvWR{WRID: wrID, SGL: []uverbs.SGE{sge}})
		return err
	}
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostRecv(uverbs.RecvWR{WRID: wrID, SGL: []uverbs.SGE{sge}})
	return err
}

// PostRecvV is PostRecv into several buffers: rdma_post_recvv(3). The errors
// are those of [ID.PostRecv].
func (i *ID) PostRecvV(wrID uint64, sgl []uverbs.SGE) error {
	if srq := i.srq.Load(); srq != nil {
		_, err := srq.PostRecv(uverbs.RecvWR{WRID: wrID, SGL: sgl})
		return err
	}
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostRecv(uverbs.RecvWR{WRID: wrID, SGL: sgl})
	return err
}

// PostSend sends a message: rdma_post_send(3). The connection must stand, or
// the error is [uverbs.ErrState]. The others: [ErrNoQP], [uverbs.ErrClosed]
// after Close, and those of [uverbs.QP.PostSend].
func (i *ID) PostSend(wrID uint64, f uverbs.SendFlags, sge uverbs.SGE) error {
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: []uverbs.SGE{sge}})
	return err
}

// PostSendV is PostSend out of several buffers: rdma_post_sendv(3). The errors
// are those of [ID.PostSend].
func (i *ID) PostSendV(wrID uint64, f uverbs.SendFlags, sgl []uverbs.SGE) error {
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: sgl})
	return err
}

// PostSendInline is PostSend of data that is copied into the queue at once: it
// need not be registered. QPConfig.MaxInline limits it. rdma_post_send(3) with
// IBV_SEND_INLINE. The errors are those of [ID.PostSend].
func (i *ID) PostSendInline(wrID uint64, f uverbs.SendFlags, data []byte) error {
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, Inline: data})
	return err
}

// PostRead reads the peer's memory into sge: rdma_post_read(3). The errors are
// those of [ID.PostSend].
func (i *ID) PostRead(wrID uint64, f uverbs.SendFlags, sge uverbs.SGE, raddr uint64, rkey uint32) error {
	return i.rdma(uverbs.OpRead, wrID, f, []uverbs.SGE{sge}, nil, raddr, rkey)
}

// PostReadV is PostRead into several buffers: rdma_post_readv(3). The errors
// are those of [ID.PostSend].
func (i *ID) PostReadV(wrID uint64, f uverbs.SendFlags, sgl []uverbs.SGE, raddr uint64, rkey uint32) error {
	return i.rdma(uverbs.OpRead, wrID, f, sgl, nil, raddr, rkey)
}

// PostWrite writes sge to the peer's memory: rdma_post_write(3). The errors are
// those of [ID.PostSend].
func (i *ID) PostWrite(wrID uint64, f uverbs.SendFlags, sge uverbs.SGE, raddr uint64, rkey uint32) error {
	return i.rdma(uverbs.OpWrite, wrID, f, []uverbs.SGE{sge}, nil, raddr, rkey)
}

// PostWriteV is PostWrite out of several buffers: rdma_post_writev(3). The
// errors are those of [ID.PostSend].
func (i *ID) PostWriteV(wrID uint64, f uverbs.SendFlags, sgl []uverbs.SGE, raddr uint64, rkey uint32) error {
	return i.rdma(uverbs.OpWrite, wrID, f, sgl, nil, raddr, rkey)
}

// PostWriteInline is PostWrite of data that is copied into the queue at once.
// The errors are those of [ID.PostSend].
func (i *ID) PostWriteInline(wrID uint64, f uverbs.SendFlags, data []byte, raddr uint64, rkey uint32) error {
	return i.rdma(uverbs.OpWrite, wrID, f, nil, data, raddr, rkey)
}

func (i *ID) rdma(op uverbs.Opcode, wrID uint64, f uverbs.SendFlags, sgl []uverbs.SGE, data []byte, raddr uint64, rkey uint32) error {
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: op, Flags: f, SGL: sgl, Inline: data, RemoteAddr: raddr, RKey: rkey})
	return err
}

// UDQKey is the Q_Key of datagrams between ids of PSUDP: RDMA_UDP_QKEY.
const UDQKey = 0x01234567

// PostUDSend sends a datagram to a QP of another id of PSUDP:
// rdma_post_ud_send(3). The address and the QPN come from the event that
// answered Connect, from that of JoinMulticast, or from a datagram's GRH. The
// errors are those of [ID.PostSend].
func (i *ID) PostUDSend(wrID uint64, f uverbs.SendFlags, sge uverbs.SGE, ah *uverbs.AH, qpn uint32) error {
	return i.ud(wrID, f, []uverbs.SGE{sge}, nil, ah, qpn)
}

// PostUDSendInline is PostUDSend of data that is copied into the queue at once.
// The errors are those of [ID.PostSend].
func (i *ID) PostUDSendInline(wrID uint64, f uverbs.SendFlags, data []byte, ah *uverbs.AH, qpn uint32) error {
	return i.ud(wrID, f, nil, data, ah, qpn)
}

func (i *ID) ud(wrID uint64, f uverbs.SendFlags, sgl []uverbs.SGE, data []byte, ah *uverbs.AH, qpn uint32) error {
	qp := i.qp.Load()
	if qp == nil {
		return i.noQP("post to")
	}
	_, err := qp.PostSend(uverbs.SendWR{WRID: wrID, Opcode: uverbs.OpSend, Flags: f, SGL: sgl, Inline: data, AH: ah, QPN: qpn, QKey: UDQKey})
	return err
}

// SendComp waits for the completion of a send, read or write:
// rdma_get_send_comp(3). It parks without holding a thread and takes one
// completion, which is the error too when its status is bad. Only signaled
// requests complete, or all with QPConfig.SignalAll. It ends early with the
// cause of the context's end and, as [uverbs.CQ.Wait], when the QP is closed.
// [ErrNoQP] before CreateQP, [ErrSharedCQ] where the queue is the caller's,
// [uverbs.ErrClosed] after Close.
func (i *ID) SendComp(ctx context.Context) (uverbs.WC, error) {
	return i.completion(ctx, i.ownSendCQ.Load(), i.sendCQ.Load())
}

// RecvComp waits for the next message to arrive: rdma_get_recv_comp(3). As
// SendComp otherwise. The errors are those of [ID.SendComp].
func (i *ID) RecvComp(ctx context.Context) (uverbs.WC, error) {
	return i.completion(ctx, i.ownRecvCQ.Load(), i.recvCQ.Load())
}

func (i *ID) completion(ctx context.Context, own, used *uverbs.CQ) (uverbs.WC, error) {
	switch {
	case used == nil:
		return uverbs.WC{}, i.noQP("wait on")
	case own == nil:
		return uverbs.WC{}, ErrSharedCQ
	}
	var wcs [1]uverbs.WC
	if _, err := own.PollWait(ctx, wcs[:]); err != nil {
		return uverbs.WC{}, err
	}
	return wcs[0], wcs[0].Err()
}

// WriteEvent puts an event of the program's own in the id's channel, where it
// comes back as EventUser with arg: rdma_write_cm_event(3). Kernels before 7.0
// do not have it: [uverbs.ErrNotSupported]. [uverbs.ErrClosed] after Close.
func (i *ID) WriteEvent(status int32, arg uint64) error {
	return i.command("write event to", nil, func() error {
		return notThere(i.node.file.WriteCMEvent(i.kernel, uint32(EventUser), status, arg))
	})
}

// notThere makes ENOSYS of the EINVAL with which a kernel answers a command
// that it does not know.
func notThere(err error) error {
	if errors.Is(err, unix.EINVAL) {
		return unix.ENOSYS
	}
	return err
}
