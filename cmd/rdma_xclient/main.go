// Rdma_xclient sends 16 bytes to an rdma_xserver, over RC or XRC. It has the
// protocol, options and output of rdma-core's rdma_xclient, so either end can be
// the C program.
//
//	rdma_xclient -c x -s server-host
//
// With XRC the server sends the number of the SRQ for the message when it accepts
// the connection. rxe does not support XRC.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

const msgLen = 16

func main() { program.Main("rdma_xclient", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	server, port, xrc := "127.0.0.1", "7471", false
	options := []getopt.Option{
		getopt.Short('s', "server", "the server's name or address (default 127.0.0.1)", getopt.String(&server)),
		getopt.Short('p', "port_number", "the server's port (default 7471)", getopt.String(&port)),
		getopt.Short('c', "communication_type", "r: RC, x: XRC (default r)", program.Service(&xrc)),
	}
	return program.Example("rdma_xclient", args, options, ": give the server's address with -s", out,
		func() error { return talk(ctx, server, port, xrc) })
}

func talk(ctx context.Context, server, port string, xrc bool) (err error) {
	hints := cm.AddrInfo{QPType: uverbs.RC}
	cfg := uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1, MaxInline: msgLen, SignalAll: true}
	if xrc {
		hints.QPType, cfg.MaxRecvWR = uverbs.XRCSend, 0
	}
	infos, err := cm.GetAddrInfo(ctx, server, port, &hints)
	if err != nil {
		return err
	}
	id, err := cm.CreateEP(ctx, &infos[0], nil, &cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	if err := id.Connect(ctx, nil); err != nil {
		return err
	}
	wr := uverbs.SendWR{Opcode: uverbs.OpSend, Inline: make([]byte, msgLen)}
	if xrc {
		data := id.Event().PrivateData
		if len(data) < 4 {
			return fmt.Errorf("the server sent no SRQ number, but %d bytes of private data: is it an rdma_xserver -c x?",
				len(data))
		}
		wr.RemoteSRQN = binary.BigEndian.Uint32(data)
	}
	if _, err := id.QP().PostSend(wr); err != nil {
		return err
	}
	if _, err := id.SendComp(ctx); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}
