package onesided

import (
	"context"
	"errors"

	"github.com/goverbs/goverbs/uverbs"
)

// rc is the reliable connected transport: a QP at each end, connected by addresses in HTTP
// headers.
type rc struct{}

func (rc) name() string { return "rc" }

func (rc) open(p *Pool) (end, error) {
	q, err := newRC(p)
	if err != nil {
		return nil, err
	}
	return q, nil
}

func (rc) accept(p *Pool, peer string) (link, string, error) {
	q, err := newRC(p)
	if err != nil {
		return nil, "", err
	}
	if err := q.connect(peer); err != nil {
		return nil, "", errors.Join(err, q.Close())
	}
	return q, q.peer(), nil
}

// An rcQP is either end of a connection.
type rcQP struct {
	cq    *uverbs.CQ
	qp    *uverbs.QP
	local uverbs.Endpoint
	up    bool
}

func newRC(p *Pool) (*rcQP, error) {
	cq, err := p.dev.CreateCQ(uverbs.CQConfig{Entries: 2})
	if err != nil {
		return nil, err
	}
	q := &rcQP{cq: cq}
	q.qp, err = p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, MaxSendWR: 1, MaxRecvWR: 1,
		Access: uverbs.RemoteRead | uverbs.RemoteWrite})
	if err == nil {
		q.local, err = q.qp.Endpoint()
	}
	if err != nil {
		return nil, errors.Join(err, q.Close())
	}
	return q, nil
}

func (q *rcQP) peer() string    { return q.local.String() }
func (q *rcQP) connected() bool { return q.up }

func (q *rcQP) connect(peer string) error {
	var remote uverbs.Endpoint
	if err := remote.UnmarshalText([]byte(peer)); err != nil {
		return err
	}
	q.up = true
	return q.qp.Connect(remote)
}

func (q *rcQP) transfer(ctx context.Context, op uverbs.Opcode, b uverbs.SGE, t Token) error {
	return move(ctx, q.qp, q.cq, t.request(op, b))
}

// Close ends all access to this machine's memory through the QP.
func (q *rcQP) Close() error {
	if q.qp != nil {
		if err := q.qp.Close(); err != nil {
			return err
		}
	}
	return q.cq.Close()
}
