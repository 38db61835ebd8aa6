package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// disconnectTimeout limits the time of a disconnection.
const disconnectTimeout = 10 * time.Second

var errNoDisconnect = atPeer("", "the peer does not confirm the disconnection")

// disconnect closes the connections of rdma_cm after the test: the server disconnects, and the client waits for
// it. A C client confirms the disconnections when it has seen all of them.
func (e *endpoint) disconnect(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, disconnectTimeout, errNoDisconnect)
	defer cancel()
	ends := make(chan error, len(e.ids))
	for _, id := range e.ids {
		go func() {
			switch {
			case id.QPType() == uverbs.UD:
				ends <- nil
			case e.o.client():
				select {
				case <-id.Disconnected():
				case <-ctx.Done(): // Close disconnects
				}
				ends <- nil
			default:
				ends <- id.Disconnect(ctx)
			}
		}()
	}
	var errs []error
	for range e.ids {
		errs = append(errs, <-ends)
	}
	return errors.Join(errs...)
}

// connectByCM creates the QPs and connects them with rdma_cm, one after the other. The
// two ends synchronize before and after.
func (e *endpoint) connectByCM(ctx context.Context) (err error) {
	if e.o.client() {
		if err := e.syncByCM(ctx); err != nil {
			return err
		}
		for range e.o.QPs {
			if _, err := retryRefused(ctx,
				func() (struct{}, error) { return struct{}{}, withPatience(ctx, e.dial) }); err != nil {
				return err
			}
		}
		return e.syncByCM(ctx)
	}
	// The server listens before the sync after which the client connects.
	l, err := listenID(ctx, e.o, e.o.Type, e.o.QPs)
	if err != nil {
		return err
	}
	err = e.syncByCM(ctx)
	for range e.o.QPs {
		if err == nil {
			err = withPatience(ctx, func(ctx context.Context) error { return e.accept(ctx, l) })
		}
	}
	if err = errors.Join(err, l.Close()); err != nil {
		return err
	}
	return e.syncByCM(ctx)
}

// syncByCM is a sync before the QPs exist.
func (e *endpoint) syncByCM(ctx context.Context) error {
	return withPatience(ctx, func(ctx context.Context) error {
		k, err := e.ctl.swap(ctx, keys{})
		if err == nil && k.qpn != 0 {
			return atPeer("-R", "the peer does not connect its queue pairs by rdma_cm: give -R to both ends, or to none")
		}
		return err
	})
}

func (e *endpoint) param() *cm.ConnParam {
	p := wireParam(e.o)
	p.RNRRetryCount = p.RetryCount
	if e.o.fetches() {
		p.ResponderResources, p.InitiatorDepth = uint8(e.o.Outs), uint8(e.o.Outs)
	}
	return p
}

// createQP creates the QP of an id on the endpoint's device.
func (e *endpoint) createQP(id *cm.SyncID) error {
	if name := id.Verbs().Name(); name != e.o.device {
		return here("-d", "the route to the peer uses %s, not %s: choose that device, or another address", name, e.o.device)
	}
	if err := id.CreateQP(e.pd, e.qpConfig()); err != nil {
		return e.explainQP(err)
	}
	e.add(id.QP())
	return nil
}

// dial creates and connects a QP. If it fails, the QP is removed.
func (e *endpoint) dial(ctx context.Context) (err error) {
	id, err := dialID(ctx, e.o, e.o.Type)
	if err != nil {
		return err
	}
	n := len(e.qps)
	defer func() {
		if err != nil {
			e.qps = e.qps[:n]
			err = errors.Join(err, id.Close())
			return
		}
		e.ids = append(e.ids, id)
	}()
	if err := e.createQP(id); err != nil {
		return err
	}
	p := e.param()
	p.PrivateData = clientTag{run: e.o.run}.bytes()
	if err := id.Connect(ctx, p); err != nil {
		return asBusy(err)
	}
	if e.o.Type != uverbs.UD {
		return nil
	}
	q := e.qps[len(e.qps)-1]
	ud := id.Event().UD
	q.qpn, q.qkey = ud.QPN, ud.QKey
	if q.ah, err = e.pd.CreateAH(ud.AH); err != nil {
		return err
	}
	if !e.serverSends() {
		return nil
	}
	return e.sendQPN(ctx, q)
}

// serverSends reports whether the server sends datagrams too. rdma_cm reports only the
// server's address, to the client.
func (e *endpoint) serverSends() bool { return !e.o.Bandwidth || e.o.Bidirectional }

// sendQPN sends a first datagram, from which the server learns the client's address.
func (e *endpoint) sendQPN(ctx context.Context, q *queue) error {
	binary.LittleEndian.PutUint32(q.mr.Bytes(), q.qp.QPN())
	if _, err := q.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSendImm, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{q.mr.SGE(0, 4)},
		Imm: q.qp.QPN(), AH: q.ah, QPN: q.qpn, QKey: q.qkey}); err != nil {
		return err
	}
	wc, err := e.next(ctx, e.scq)
	if err != nil {
		return err
	}
	return wc.Err()
}

// next waits for a completion before the test.
func (e *endpoint) next(ctx context.Context, cq *uverbs.CQ) (*uverbs.WC, error) {
	if e.o.Events {
		if _, err := cq.PollWait(ctx, e.wcs[:1]); err != nil {
			return nil, err
		}
		return &e.wcs[0], nil
	}
	for ctx.Err() == nil {
		if n, err := cq.Poll(e.wcs[:1]); n > 0 || err != nil {
			return &e.wcs[0], err
		}
	}
	return nil, context.Cause(ctx)
}

func (e *endpoint) accept(ctx context.Context, l *cm.SyncID) error {
	id, err := e.request(ctx, l)
	if err != nil {
		return err
	}
	e.ids = append(e.ids, id)
	request := id.Event()
	if err := e.createQP(id); err != nil {
		return err
	}
	p := e.param()
	if e.o.fetches() && request != nil { // not more than the peer requests
		p.ResponderResources = min(p.ResponderResources, request.Conn.InitiatorDepth)
		p.InitiatorDepth = min(p.InitiatorDepth, request.Conn.ResponderResources)
	}
	if e.o.Type == uverbs.RC {
		if err := id.SetAckTimeout(uint8(e.o.QPTimeout)); err != nil {
			return err
		}
		if err := id.Accept(ctx, p); err != nil {
			return err
		}
		return id.QP().Modify(uverbs.QPAttr{MinRNRTimer: minRNRTimer}, uverbs.MaskMinRNRTimer)
	}
	return e.acceptUD(ctx, id, p)
}

// acceptUD accepts a request. If the server sends too, it gets the client's address
// from the client's first datagram.
func (e *endpoint) acceptUD(ctx context.Context, id *cm.SyncID, p *cm.ConnParam) error {
	q := e.qps[len(e.qps)-1]
	if !e.serverSends() {
		return id.Accept(ctx, p)
	}
	if err := e.postRecv(q, uverbs.RecvWR{SGL: []uverbs.SGE{q.mr.SGE(0, uverbs.GRHLen+4)}}); err != nil {
		return err
	}
	if err := id.Accept(ctx, p); err != nil {
		return err
	}
	wc, err := e.next(ctx, e.rcq)
	if err != nil {
		return err
	}
	if err := wc.Err(); err != nil {
		return err
	}
	if wc.Flags&uverbs.WCWithImm == 0 {
		return atPeer("", "the peer's first datagram does not contain its queue pair number: it is not perftest")
	}
	if q.ah, err = e.pd.CreateAHFromWC(id.Port(), wc, q.mr.Bytes()[:uverbs.GRHLen]); err != nil {
		return err
	}
	q.qpn, q.qkey = wc.Imm, cm.UDQKey
	return nil
}
