// Rdma_server waits for an rdma_client, receives 16 bytes and sends 16 bytes. It
// has the protocol, options and output of rdma-core's rdma_server, so either end
// can be the C program.
//
//	rdma_server
//
// It is an example of the synchronous API of package cm: each call waits for its
// result.
package main

import (
	"context"
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

func main() { program.Main("rdma_server", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	server, port := "0.0.0.0", "7471"
	options := []getopt.Option{
		getopt.Short('s', "server_address", "the address to listen on (default any of IPv4: 0.0.0.0)",
			getopt.String(&server)),
		getopt.Short('p', "port_number", "the port to listen on (default 7471)", getopt.String(&port)),
	}
	return program.Example("rdma_server", args, options, ": give the address with -s", out,
		func() error { return serve(ctx, server, port, out) })
}

// serve serves one client.
func serve(ctx context.Context, server, port string, out io.Writer) (err error) {
	infos, err := cm.GetAddrInfo(ctx, server, port, &cm.AddrInfo{Flags: cm.Passive, PortSpace: cm.PSTCP})
	if err != nil {
		return err
	}
	// The QPConfig is for the QPs of the requests.
	listener, err := cm.CreateEP(ctx, &infos[0], nil,
		&uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1, MaxInline: msgLen, SignalAll: true})
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
	return talk(ctx, id, out)
}

func talk(ctx context.Context, id *cm.SyncID, out io.Writer) (err error) {
	mr, err := id.AllocMsgs(2 * msgLen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	recv, send := mr.SGE(0, msgLen), mr.SGE(msgLen, msgLen)

	if err := id.PostRecv(0, recv); err != nil {
		return err
	}
	if err := id.Accept(ctx, nil); err != nil {
		return err
	}
	if _, err := id.RecvComp(ctx); err != nil {
		return err
	}
	if id.QP().Cap().MaxInline >= msgLen {
		err = id.PostSendInline(0, 0, make([]byte, msgLen))
	} else {
		fmt.Fprintln(out, "rdma_server: device doesn't support IBV_SEND_INLINE, using sge sends")
		err = id.PostSend(0, 0, send)
	}
	if err != nil {
		return err
	}
	if _, err := id.SendComp(ctx); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}
