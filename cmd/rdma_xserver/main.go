// Rdma_xserver waits for an rdma_xclient and receives 16 bytes, over RC or XRC. It
// has the protocol, options and output of rdma-core's rdma_xserver, so either end
// can be the C program.
//
//	rdma_xserver -c x
//
// With XRC the message goes to an SRQ, whose number the server sends to the client
// when it accepts the connection. rxe does not support XRC.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"io"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

const msgLen = 16

func main() { program.Main("rdma_xserver", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	port, xrc := "7471", false
	options := []getopt.Option{
		getopt.Short('p', "port_number", "the port to listen on (default 7471)", getopt.String(&port)),
		getopt.Short('c', "communication_type", "r: RC, x: XRC (default r)", program.Service(&xrc)),
	}
	return program.Example("rdma_xserver", args, options, "", out,
		func() error { return serve(ctx, port, xrc) })
}

// serve serves one client.
func serve(ctx context.Context, port string, xrc bool) (err error) {
	hints := cm.AddrInfo{Flags: cm.Passive, QPType: uverbs.RC}
	cfg := uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1}
	if xrc {
		hints.QPType, cfg = uverbs.XRCRecv, uverbs.QPConfig{} // an XRC target QP has no queues
	}
	infos, err := cm.GetAddrInfo(ctx, "", port, &hints)
	if err != nil {
		return err
	}
	listener, err := cm.CreateEP(ctx, &infos[0], nil, &cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	if err := listener.Listen(0); err != nil {
		return err
	}
	id, err := listener.GetRequest(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	return receive(ctx, id, xrc)
}

func receive(ctx context.Context, id *cm.SyncID, xrc bool) (err error) {
	number := make([]byte, 4) // of the SRQ; 0 for none
	if xrc {
		if err := id.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 1}); err != nil {
			return err
		}
		binary.BigEndian.PutUint32(number, id.SRQ().SRQN())
	}
	mr, err := id.AllocMsgs(msgLen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	if err := id.PostRecv(0, mr.SGE(0, msgLen)); err != nil {
		return err
	}
	if err := id.Accept(ctx, &cm.ConnParam{PrivateData: number, RNRRetryCount: 7}); err != nil {
		return err
	}
	if _, err := id.RecvComp(ctx); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}
