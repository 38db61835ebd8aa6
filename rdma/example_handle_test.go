package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/goverbs/goverbs/rdma"
)

// A handler returns a reply or an error, which its caller gets with code and text. Its context has the deadline of the
// caller. An interceptor is a function that returns a handler: authorized calls the next one only for a tenant.
func ExampleConn_Handle() {
	const permissionDenied, invalidArgument = 7, 3 // codes of gRPC
	parse := func(ctx context.Context, r *rdma.Request) ([]byte, error) {
		d, err := time.ParseDuration(string(r.Bytes()))
		if err != nil {
			return nil, &rdma.CallError{Code: invalidArgument, Text: err.Error()}
		}
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
			return nil, context.DeadlineExceeded // the caller does not wait so long
		}
		return fmt.Append(nil, d), nil
	}
	authorized := func(next rdma.Handler) rdma.Handler {
		return func(ctx context.Context, r *rdma.Request) ([]byte, error) {
			if r.Metadata()["tenant"] == "" {
				return nil, &rdma.CallError{Code: permissionDenied, Text: "who are you?"}
			}
			return next(ctx, r)
		}
	}
	client, server := exampleConn() // the two sides of a connection
	handled := make(chan error, 1)
	go func() { handled <- server.Handle(context.Background(), authorized(parse), nil) }()

	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	tenant := rdma.WithMetadata(ctx, "tenant", "blue")
	for _, call := range []struct {
		ctx     context.Context
		request string
	}{{ctx, "1m"}, {tenant, "1m"}, {tenant, "soon"}, {tenant, "100h"}} {
		reply, err := client.Call(call.ctx, []byte(call.request))
		var failed *rdma.CallError
		switch {
		case errors.As(err, &failed):
			fmt.Println(failed.Code, failed.Text, errors.Is(err, context.DeadlineExceeded))
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%s\n", reply.Copy())
		}
	}
	fmt.Println(client.Close(), <-handled, server.Close())
	// Output:
	// 7 who are you? false
	// 1m0s
	// 3 time: invalid duration "soon" false
	// 4 context deadline exceeded true
	// <nil> <nil> <nil>
}
