// Grpc is a gRPC service over RDMA, and a client of it. The service sends messages back:
//
//	grpc serve
//
// The client, with the address of the server's RDMA device, sends each argument as a message of a stream:
//
//	grpc call 192.0.2.1:7471 hello world
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rsocket"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 1 && args[0] == "serve" {
		l, err := rsocket.Listen("tcp", ":7471")
		if err != nil {
			return err
		}
		return serve(ctx, l)
	}
	if len(args) > 2 && args[0] == "call" {
		return call(ctx, args[1], args[2:], out)
	}
	return errors.New("usage: grpc serve | grpc call HOST:PORT TEXT...")
}

// serve serves until ctx ends, and then finishes the calls that have begun.
func serve(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer()
	s.RegisterService(&echoService, server{})
	stop := context.AfterFunc(ctx, s.GracefulStop)
	defer stop()
	return s.Serve(l)
}

// dial returns a client of the server at addr. It connects when it is used.
func dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
			return new(rsocket.Dialer).DialContext(ctx, "tcp", addr)
		}))
}

// call sends texts to the server at addr and prints the replies.
func call(ctx context.Context, addr string, texts []string, out io.Writer) (err error) {
	c, err := dial(addr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	stream, err := chat(ctx, c)
	if err != nil {
		return err
	}
	for _, text := range texts {
		if err := stream.Send(&message{Value: []byte(text)}); err != nil {
			return err
		}
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", m.Value)
	}
	return stream.CloseSend()
}
