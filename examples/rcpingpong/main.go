// Rcpingpong sends a message to and fro between two processes, over a reliable
// connection. It speaks the protocol of ibv_rc_pingpong of rdma-core, takes its
// options and prints its lines, so that either end can be the C program.
//
// Server, then client:
//
//	rcpingpong
//	rcpingpong server-host
//
// What it does beyond the C program is in the package examples/internal/pingpong,
// which the pingpong programs share.
package main

import (
	"context"
	"io"

	"github.com/goverbs/goverbs/examples/internal/pingpong"
	"github.com/goverbs/goverbs/examples/internal/program"
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
		getopt.New('N', "new_send", "", "post by the batch builder", getopt.Flag(&e.newSend)),
	)
}

// Open makes the QP.
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

// Send posts the message: as ibv_post_send(3) does, or as ibv_wr_start(3) and
// its kin do.
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
