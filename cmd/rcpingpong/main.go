// Rcpingpong sends a message back and forth between two processes over a reliable
// connection. It has the protocol, options and output of rdma-core's
// ibv_rc_pingpong, so either end can be the C program.
//
// Server, then client:
//
//	rcpingpong
//	rcpingpong server-host
//
// Package cmd/internal/pingpong, which the pingpong programs share, lists the
// differences from the C program.
package main

import (
	"context"
	"io"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() { program.Main("rcpingpong", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	e := &end{opt: pingpong.Defaults("rcpingpong", 4096)}
	return pingpong.Run(ctx, e.opt, args, e.table(), e, out)
}

// An end is one end of the connection.
type end struct {
	opt     *pingpong.Options
	newSend bool
	memory  *pingpong.Memory
	qp      *uverbs.QP
}

func (e *end) table() []getopt.Option {
	return append(e.opt.Common(), e.opt.PathMTU(),
		pingpong.Unsupported('o', "odp", "use on demand paging", "on-demand paging"),
		pingpong.Unsupported('O', "iodp", "use implicit on demand paging", "implicit on-demand paging"),
		pingpong.Unsupported('P', "prefetch", "prefetch an ODP MR", "prefetching on-demand memory"),
		pingpong.Unsupported('t', "ts", "get CQE with timestamp", "completion timestamps"),
		pingpong.Unsupported('j', "dm", "use device memory", "device memory"),
		getopt.New('N', "new_send", "", "post with a SendBatch", getopt.Flag(&e.newSend)),
	)
}

// Open creates the QP.
func (e *end) Open(dev *uverbs.Context, _ *uverbs.PortAttr) (*pingpong.Queues, error) {
	q, err := e.opt.OneQP(dev, uverbs.RC, pingpong.Layout{Filler: 0x7b, Slots: 1})
	if err != nil {
		return nil, err
	}
	e.memory, e.qp = q.Memory, q.QPs[0]
	return q, e.opt.Init(e.qp)
}

// Connect connects the QP to the peer's.
func (e *end) Connect(_ int, local, remote pingpong.Address, av uverbs.AHAttr) error {
	return e.opt.ConnectRC(e.qp, local, remote, av)
}

// Send posts the message, with PostSend or with a SendBatch (-N).
func (e *end) Send(int) error {
	if !e.newSend {
		return e.memory.PostSend(e.qp)
	}
	inline, sgl := e.memory.Payload(e.qp)
	b := e.qp.StartSend()
	if sgl == nil {
		b.SendInline(0, uverbs.Signaled, inline)
	} else {
		b.SendSGE(0, uverbs.Signaled, sgl[0])
	}
	return b.Submit()
}
