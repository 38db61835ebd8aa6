package main

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// lines establishes connections, with a handshake over TCP or with package cm.
type lines interface {
	listen(addr string) error
	// next connects, or waits for a connection. Its error is of one attempt.
	next(ctx context.Context) (line, error)
	close() error
}

// A line is a connection, with a QP whose receives are posted.
type line interface {
	remoteHello() hello
	queues() *queues
	disconnected() <-chan struct{} // closed when the other end has closed the connection
	// finish waits until the other end does not need this one any more.
	finish(ctx context.Context) error
	close() error
}

// connectLimit is the time limit of one attempt to connect.
const connectLimit = 10 * time.Second

var errGone = errors.New("the other end has closed the connection")

// queues holds the queues of a session.
type queues struct {
	cq *uverbs.CQ
	qp *uverbs.QP
}

// newCQ creates a CQ with room for all requests.
func (p *peer) newCQ() (*uverbs.CQ, error) {
	return p.dev.CreateCQ(uverbs.CQConfig{Entries: window + 1 + 2*rounds + receives})
}

func qpConfig(cq *uverbs.CQ) uverbs.QPConfig {
	return uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, RecvCQ: cq, MaxSendWR: window + 1 + 2*rounds, MaxRecvWR: receives,
		Access: uverbs.RemoteRead | uverbs.RemoteWrite}
}

// receive posts a receive into a slot.
func (p *peer) receive(qp *uverbs.QP, i int) error {
	_, err := qp.PostRecv(uverbs.RecvWR{WRID: id(recvAt, i), SGL: []uverbs.SGE{p.sge(recvAt+i, slot)}})
	return err
}

func (p *peer) receiveAll(qp *uverbs.QP) error {
	for i := range receives {
		if err := p.receive(qp, i); err != nil {
			return err
		}
	}
	return nil
}

// id returns the WRID of a request, by the slot that it uses.
func id(part, i int) uint64 { return uint64(part)<<32 | uint64(i) }
