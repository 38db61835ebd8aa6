package main

import (
	"context"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A message is bytes. The type is part of the protobuf module, so that the example needs no generated code.
type message = wrapperspb.BytesValue

// The methods of the service Echo.
const (
	echoMethod = "/goverbs.example.Echo/Echo" // a message, which the server sends back
	chatMethod = "/goverbs.example.Echo/Chat" // a stream of messages, which the server sends back one by one
)

// An echoServer implements the service.
type echoServer interface {
	Echo(context.Context, *message) (*message, error)
	Chat(grpc.BidiStreamingServer[message, message]) error
}

// echoService describes the service, as protoc-gen-go-grpc would.
var echoService = grpc.ServiceDesc{
	ServiceName: "goverbs.example.Echo",
	HandlerType: (*echoServer)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(s any, ctx context.Context, decode func(any) error,
		intercept grpc.UnaryServerInterceptor,
	) (any, error) {
		in := new(message)
		if err := decode(in); err != nil {
			return nil, err
		}
		if intercept == nil {
			return s.(echoServer).Echo(ctx, in)
		}
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: echoMethod}
		return intercept(ctx, in, info, func(ctx context.Context, in any) (any, error) {
			return s.(echoServer).Echo(ctx, in.(*message))
		})
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Chat", ClientStreams: true, ServerStreams: true,
		Handler: func(s any, stream grpc.ServerStream) error {
			return s.(echoServer).Chat(&grpc.GenericServerStream[message, message]{ServerStream: stream})
		}}},
}

// echo calls the method Echo.
func echo(ctx context.Context, c *grpc.ClientConn, b []byte) ([]byte, error) {
	reply := new(message)
	err := c.Invoke(ctx, echoMethod, &message{Value: b}, reply)
	return reply.Value, err
}

// chat calls the method Chat.
func chat(ctx context.Context, c *grpc.ClientConn) (grpc.BidiStreamingClient[message, message], error) {
	s, err := c.NewStream(ctx, &echoService.Streams[0], chatMethod)
	if err != nil {
		return nil, err
	}
	return &grpc.GenericClientStream[message, message]{ClientStream: s}, nil
}

// A server sends messages back.
type server struct{}

func (server) Echo(_ context.Context, m *message) (*message, error) { return m, nil }

func (server) Chat(stream grpc.BidiStreamingServer[message, message]) error {
	for {
		m, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(m); err != nil {
			return err
		}
	}
}
