// Ucpingpong sends a message back and forth between two processes over an
// unreliable connection. It has the protocol, options and output of rdma-core's
// ibv_uc_pingpong, so either end can be the C program.
//
// Server, then client:
//
//	ucpingpong
//	ucpingpong server-host
//
// A lost message ends the program. Package cmd/internal/pingpong, which the
// pingpong programs share, lists the differences from the C program.
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

func main() { program.Main("ucpingpong", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	e := &end{opt: pingpong.Defaults("ucpingpong", 4096)}
	return pingpong.Run(ctx, e.opt, args, e.table(), e, out)
}

// An end is one end of the connection.
type end struct {
	opt    *pingpong.Options
	memory *pingpong.Memory
	qp     *uverbs.QP
}

func (e *end) table() []getopt.Option { return append(e.opt.Common(), e.opt.PathMTU()) }

// Open creates the QP.
func (e *end) Open(dev *uverbs.Context, _ *uverbs.PortAttr) (*pingpong.Queues, error) {
	q, err := e.opt.OneQP(dev, uverbs.UC, pingpong.Layout{Filler: 0x7b, Slots: 1})
	if err != nil {
		return nil, err
	}
	e.memory, e.qp = q.Memory, q.QPs[0]
	return q, e.opt.Init(e.qp)
}

// Connect connects the QP to the peer's. UC has no acknowledgements, so it needs
// fewer attributes than RC.
func (e *end) Connect(_ int, local, remote pingpong.Address, av uverbs.AHAttr) error {
	err := e.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR, PathMTU: e.opt.MTU, DestQPN: remote.QPN,
		RQPSN: remote.PSN, AV: av},
		uverbs.MaskState|uverbs.MaskAV|uverbs.MaskPathMTU|uverbs.MaskDestQPN|uverbs.MaskRQPSN)
	if err != nil {
		return err
	}
	return e.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: local.PSN}, uverbs.MaskState|uverbs.MaskSQPSN)
}

// Send posts the message.
func (e *end) Send(int) error { return e.memory.PostSend(e.qp) }
