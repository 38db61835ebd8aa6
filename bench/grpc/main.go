// Grpc measures unary calls of gRPC over TCP, without encryption: what bench/rdmacost -level calls measures with
// package rdma. It is also a program of bench/clients: a server and its clients, each with a connection.
//
//	grpc -addr 10.9.0.1
//	clients -addr 10.9.0.1 -n 1000 grpc
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/goverbs/goverbs/bench/measure"
)

func main() {
	if len(os.Args) == 3 && (os.Args[1] == "serve" || os.Args[1] == "dial") {
		p := measure.Parts{Listen: listen, Dial: dialClient}
		if err := p.Run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "grpc:", err)
			os.Exit(1)
		}
		return
	}
	measure.Main("grpc", func(addr string, _ bool) ([]*measure.Level, error) { return level(addr) })
}

const method = "/bench.Echo/Head"

// service has one method. Its reply is the first measure.SmallSize bytes of the request.
var service = grpc.ServiceDesc{
	ServiceName: "bench.Echo",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Head", Handler: func(_ any, _ context.Context, decode func(any) error,
		_ grpc.UnaryServerInterceptor) (any, error) {
		m := new(wrapperspb.BytesValue)
		if err := decode(m); err != nil {
			return nil, err
		}
		return &wrapperspb.BytesValue{Value: m.Value[:measure.SmallSize]}, nil
	}}},
}

func serve(addr string) (*grpc.Server, string, error) {
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		return nil, "", err
	}
	s := grpc.NewServer()
	s.RegisterService(&service, struct{}{})
	go s.Serve(l)
	return s, l.Addr().String(), nil
}

func listen(addr string) (string, func() error, error) {
	s, at, err := serve(addr)
	return at, func() error { s.Stop(); return nil }, err
}

func dial(at string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+at, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

func dialClient(at string) (do, close func() error, err error) {
	c, err := dial(at)
	if err != nil {
		return nil, nil, err
	}
	request := make([]byte, measure.SmallSize)
	return func() error { return call(c, request) }, c.Close, nil
}

func call(c *grpc.ClientConn, request []byte) error {
	reply := new(wrapperspb.BytesValue)
	err := c.Invoke(context.Background(), method, &wrapperspb.BytesValue{Value: request}, reply)
	if err == nil && len(reply.Value) != measure.SmallSize {
		err = errors.New("the reply has another length")
	}
	return err
}

func level(addr string) ([]*measure.Level, error) {
	s, at, err := serve(addr)
	if err != nil {
		return nil, err
	}
	c, err := dial(at)
	data := make([]byte, measure.LargeSize)
	return []*measure.Level{{Name: "_grpc", Call: func(n int) error { return call(c, data[:n]) }, Close: func() error {
		err := c.Close()
		s.Stop()
		return err
	}}}, err
}
