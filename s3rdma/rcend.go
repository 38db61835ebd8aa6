package s3rdma

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// An rcEnd is either end of a connection, with a PD for its memory alone.
type rcEnd struct {
	pd    *uverbs.PD
	cq    *uverbs.CQ
	qp    *uverbs.QP
	mr    *uverbs.MR
	local uverbs.Endpoint
}

// newRCEnd creates an end whose memory is b. If right is RemoteWrite, the peer may write it.
func newRCEnd(d *Device, b []byte, right uverbs.Access) (*rcEnd, error) {
	e := &rcEnd{}
	err := e.create(d, b, right|uverbs.LocalWrite)
	if err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *rcEnd) create(d *Device, b []byte, access uverbs.Access) (err error) {
	if e.pd, err = d.ctx.AllocPD(); err != nil {
		return err
	}
	if e.mr, err = e.pd.RegMR(b, access); err != nil {
		return err
	}
	if e.cq, err = d.ctx.CreateCQ(uverbs.CQConfig{Entries: 2}); err != nil {
		return err
	}
	e.qp, err = e.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: e.cq, MaxSendWR: 1, MaxRecvWR: 1,
		Access: uverbs.RemoteWrite})
	if err != nil {
		return err
	}
	if e.local, err = e.qp.Endpoint(); err == nil && e.local.PSN == 0 { // which the wire does not have
		err = errors.New("s3rdma: the PSN is 0")
	}
	return err
}

// token returns the token of this end.
func (e *rcEnd) token() rcToken {
	return rcToken{qpn: e.local.QPN, gid: e.local.GID, rkey: e.mr.RKey(), addr: e.mr.Addr(), length: uint64(e.mr.Len()),
		port: 1, lid: e.local.LID}
}

// connect posts the receive for the immediate data of the peer, and connects to it. Both ends have the same MTU, since
// the wire has none.
func (e *rcEnd) connect(peer rcToken, psn uint32) error {
	if err := e.qp.Init(); err != nil {
		return err
	}
	if _, err := e.qp.PostRecv(uverbs.RecvWR{}); err != nil {
		return err
	}
	return e.qp.Connect(uverbs.Endpoint{QPN: peer.qpn, PSN: psn, LID: peer.lid, GID: peer.gid, MTU: e.local.MTU,
		RdAtomic: e.local.RdAtomic})
}

// write writes the memory to the peer's, with the cookie as immediate data.
func (e *rcEnd) write(ctx context.Context, addr uint64, rkey, cookie uint32) error {
	return e.moved(move(ctx, e.qp, e.cq, uverbs.SendWR{Opcode: uverbs.OpWriteImm, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{e.mr.SGE(0, e.mr.Len())}, RemoteAddr: addr, RKey: rkey, Imm: cookie}))
}

// written waits until the peer has written all of the memory.
func (e *rcEnd) written(ctx context.Context, cookie uint32) error {
	var wc [1]uverbs.WC
	if _, err := e.cq.PollWait(ctx, wc[:]); err != nil {
		return e.moved(err)
	}
	switch err := wc[0].Err(); {
	case err != nil:
		return e.moved(err)
	case wc[0].Opcode != uverbs.WCRecvRDMAImm || wc[0].Imm != cookie || int(wc[0].ByteLen) != e.mr.Len():
		return e.moved(fmt.Errorf("%w: %v of %d bytes with cookie %08x, want a WRITE of %d with %08x", ErrProtocol,
			wc[0].Opcode, wc[0].ByteLen, wc[0].Imm, e.mr.Len(), cookie))
	}
	return nil
}

func (e *rcEnd) moved(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %d bytes by reliable connection: %w", ErrTransfer, e.mr.Len(), err)
	}
	return nil
}

// close ends all access to the memory. After an error the memory must not be used again.
func (e *rcEnd) close() error {
	return errors.Join(closeOne(e.qp), closeOne(e.mr), closeOne(e.cq), closeOne(e.pd))
}
