// Udpingpong sends a message back and forth between two processes as unreliable
// datagrams. It has the protocol, options and output of rdma-core's
// ibv_ud_pingpong, so either end can be the C program.
//
// Server, then client:
//
//	udpingpong
//	udpingpong server-host
//
// A lost datagram ends the program. Package cmd/internal/pingpong, which the
// pingpong programs share, lists the differences from the C program.
package main

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/cmd/internal/program"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

func main() { program.Main("udpingpong", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	e := &end{opt: pingpong.Defaults("udpingpong", 1024)}
	e.opt.LocalText = localText
	return pingpong.Run(ctx, e.opt, args, e.opt.Common(), e, out)
}

// localText formats the local address as ibv_ud_pingpong does, with a colon where
// the remote address has a comma.
func localText(a pingpong.Address) string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x: GID %v", a.LID, a.QPN, a.PSN, a.GID)
}

// qkey is the Q_Key of both ends.
const qkey = 0x11111111

// An end is one of the two ends.
type end struct {
	opt    *pingpong.Options
	memory *pingpong.Memory
	qp     *uverbs.QP
	ah     *uverbs.AH // of the peer
	qpn    uint32     // of the peer
}

// Open creates the QP. Each of its receives has room for the GRH before a datagram.
func (e *end) Open(dev *uverbs.Context, port *uverbs.PortAttr) (*pingpong.Queues, error) {
	if mtu := port.ActiveMTU.Bytes(); e.opt.Size > mtu {
		return nil, fmt.Errorf("a datagram of %d bytes exceeds the active MTU of port %d of %s: use -s %d, or raise the "+
			"MTU of its network interface",
			e.opt.Size, e.opt.IBPort, dev.Name(), mtu)
	}
	q, err := e.opt.OneQP(dev, uverbs.UD, pingpong.Layout{Header: uverbs.GRHLen, Filler: 0x7b, Slots: 1})
	if err != nil {
		return nil, err
	}
	e.memory, e.qp = q.Memory, q.QPs[0]
	return q, e.qp.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: uint8(e.opt.IBPort), QKey: qkey},
		uverbs.MaskState|uverbs.MaskPKeyIndex|uverbs.MaskPort|uverbs.MaskQKey)
}

// Connect moves the QP to RTS and creates the peer's address handle.
func (e *end) Connect(_ int, local, remote pingpong.Address, av uverbs.AHAttr) (err error) {
	if err := e.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTR}, uverbs.MaskState); err != nil {
		return err
	}
	err = e.qp.Modify(uverbs.QPAttr{State: uverbs.StateRTS, SQPSN: local.PSN}, uverbs.MaskState|uverbs.MaskSQPSN)
	if err != nil {
		return err
	}
	e.qpn = remote.QPN
	e.ah, err = e.qp.PD().CreateAH(av)
	return err
}

// Send posts the message to the peer.
func (e *end) Send(int) error {
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, AH: e.ah, QPN: e.qpn, QKey: qkey}
	wr.Inline, wr.SGL = e.memory.Payload(e.qp)
	_, err := e.qp.PostSend(wr)
	return err
}
