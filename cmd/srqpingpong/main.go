// Srqpingpong sends messages back and forth between two processes over several
// reliable connections that share one receive queue. It has the protocol, options
// and output of rdma-core's ibv_srq_pingpong, so either end can be the C program.
//
// Server, then client:
//
//	srqpingpong
//	srqpingpong server-host
//
// Package cmd/internal/pingpong, which the pingpong programs share, lists the
// differences from the C program.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() { program.Main("srqpingpong", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	e := &end{opt: pingpong.Defaults("srqpingpong", 4096), numQP: 16}
	return pingpong.Run(ctx, e.opt, args, e.table(), e, out)
}

// maxQP is the number of addresses that the ends exchange. The C program accepts at
// most maxQP-1 QPs.
const maxQP = 256

// An end is one end of the connections.
type end struct {
	opt    *pingpong.Options
	numQP  int
	memory *pingpong.Memory
	qps    []*uverbs.QP
}

func (e *end) table() []getopt.Option {
	return append(e.opt.Common(), e.opt.PathMTU(),
		getopt.New('q', "num-qp", "num", "number of QPs to use (default 16)", getopt.Int(&e.numQP, 1, maxQP-1)),
		pingpong.Unsupported('o', "odp", "use on demand paging", "on-demand paging"),
	)
}

// Open creates the QPs and their SRQ.
func (e *end) Open(dev *uverbs.Context, _ *uverbs.PortAttr) (*pingpong.Queues, error) {
	depth := e.opt.RxDepth
	if e.numQP > depth {
		return nil, fmt.Errorf("%d receives are too few for %d queue pairs: use -r %d", depth, e.numQP, e.numQP)
	}
	pd, err := dev.AllocPD()
	if err != nil {
		return nil, err
	}
	if e.memory, err = e.opt.Alloc(pd, pingpong.Layout{Slots: depth}); err != nil {
		return nil, err
	}
	cq, err := dev.CreateCQ(uverbs.CQConfig{Entries: depth + e.numQP, NoEvents: !e.opt.Events, SingleGoroutine: true})
	if err != nil {
		return nil, err
	}
	srq, err := pd.CreateSRQ(uverbs.SRQConfig{MaxWR: depth, SingleGoroutine: true})
	if err != nil {
		return nil, err
	}
	for range e.numQP {
		qp, err := pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: cq, SRQ: srq, MaxSendWR: 1, SingleGoroutine: true})
		if err != nil {
			return nil, err
		}
		if err := e.opt.Init(qp); err != nil {
			return nil, err
		}
		e.qps = append(e.qps, qp)
	}
	return &pingpong.Queues{CQ: cq, QPs: e.qps, PostRecv: srq.PostRecv, Memory: e.memory, Records: maxQP}, nil
}

// Connect connects a QP to one of the peer's.
func (e *end) Connect(qp int, local, remote pingpong.Address, av uverbs.AHAttr) error {
	return e.opt.ConnectRC(e.qps[qp], local, remote, av)
}

// Send posts the message on a QP.
func (e *end) Send(qp int) error { return e.memory.PostSend(e.qps[qp]) }
