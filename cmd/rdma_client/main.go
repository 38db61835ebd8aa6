// Rdma_client sends 16 bytes to an rdma_server and receives 16 bytes. It has the
// protocol, options and output of rdma-core's rdma_client, so either end can be
// the C program.
//
//	rdma_client -s server-host
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

func main() { program.Main("rdma_client", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	server, port := "127.0.0.1", "7471"
	options := []getopt.Option{
		getopt.Short('s', "server_address", "the server's name or address (default 127.0.0.1)", getopt.String(&server)),
		getopt.Short('p', "port_number", "the server's port (default 7471)", getopt.String(&port)),
	}
	return program.Example("rdma_client", args, options, ": give the server's address with -s", out,
		func() error { return talk(ctx, server, port, out) })
}

func talk(ctx context.Context, server, port string, out io.Writer) (err error) {
	infos, err := cm.GetAddrInfo(ctx, server, port, &cm.AddrInfo{PortSpace: cm.PSTCP})
	if err != nil {
		return err
	}
	id, err := cm.CreateEP(ctx, &infos[0], nil,
		&uverbs.QPConfig{MaxSendWR: 1, MaxRecvWR: 1, MaxInline: msgLen, SignalAll: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.Close()) }()
	mr, err := id.AllocMsgs(2 * msgLen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mr.Close()) }()
	recv, send := mr.SGE(0, msgLen), mr.SGE(msgLen, msgLen)

	if err := id.PostRecv(0, recv); err != nil {
		return err
	}
	if err := id.Connect(ctx, nil); err != nil {
		return err
	}
	if id.QP().Cap().MaxInline >= msgLen {
		err = id.PostSendInline(0, 0, make([]byte, msgLen))
	} else {
		fmt.Fprintln(out, "rdma_client: device doesn't support IBV_SEND_INLINE, using sge sends")
		err = id.PostSend(0, 0, send)
	}
	if err != nil {
		return err
	}
	if _, err := id.SendComp(ctx); err != nil {
		return err
	}
	if _, err := id.RecvComp(ctx); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}
