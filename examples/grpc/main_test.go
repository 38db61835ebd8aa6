package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

// TestCommands runs the two commands.
func TestCommands(t *testing.T) {
	n := verbstest.NewNetwork(t)
	there, here := n.Machine(), n.Machine()
	ctx, stop := context.WithTimeout(t.Context(), deadline)
	served := make(chan error, 1)
	there.Run(func() { go func() { served <- run(ctx, []string{"serve"}, nil) }() })
	here.Run(func() {
		var out bytes.Buffer
		args := []string{"call", there.AddrPort(7471).String(), "hello", "world"}
		err := run(ctx, args, &out)
		for status.Code(err) == codes.Unavailable && ctx.Err() == nil { // the server is not there yet
			err = run(ctx, args, &out)
		}
		if err != nil || out.String() != "hello\nworld\n" {
			t.Errorf("the output is %q, %v", &out, err)
		}
	})
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), nil, nil); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("without arguments: %v", err)
	}
}

// A rig is a server and its clients, on two machines.
type rig struct {
	net         *verbstest.Network
	here, there *verbstest.Machine
	clients     []*grpc.ClientConn
}

func newRig(t *testing.T, clients int, timeouts verbstest.Timeouts) *rig {
	t.Helper()
	r := &rig{net: verbstest.NewNetwork(t)}
	r.net.SetTimeouts(timeouts)
	r.here, r.there = r.net.Machine(), r.net.Machine()
	r.there.Run(func() {
		l, err := rsocket.Listen("tcp", ":7471")
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- serve(ctx, l) }()
		t.Cleanup(func() {
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	})
	for range clients {
		c, err := r.dial(r.there.AddrPort(7471).String())
		if err != nil {
			t.Fatal(err)
		}
		r.clients = append(r.clients, c)
	}
	t.Cleanup(func() {
		for _, c := range r.clients {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return r
}

// dial is the function dial of the program. gRPC dials again from timers, which run on no machine.
func (r *rig) dial(addr string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, addr string) (c net.Conn, err error) {
			r.here.Run(func() { c, err = new(rsocket.Dialer).DialContext(ctx, "tcp", addr) })
			return c, err
		}))
}

// payload returns n bytes that differ from call to call.
func payload(n int) []byte {
	b := make([]byte, n)
	r := rand.Uint32()
	for i := range b {
		b[i] = byte(r + uint32(i)*2654435761>>24)
	}
	return b
}

const small, large = 8 << 10, 1 << 20

// deadline is how long a request may take.
const deadline = 30 * time.Second

// unary makes a call and checks the reply.
func unary(ctx context.Context, c *grpc.ClientConn, size int) error {
	b := payload(size)
	reply, err := echo(ctx, c, b)
	if err == nil && !bytes.Equal(reply, b) {
		err = fmt.Errorf("the reply of %d bytes differs from the %d bytes that were sent", len(reply), len(b))
	}
	return err
}

// streaming sends messages on a stream while their replies arrive, and checks these.
func streaming(ctx context.Context, c *grpc.ClientConn, size, messages int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := chat(ctx, c)
	if err != nil {
		return err
	}
	b := payload(size)
	sent := make(chan error, 1)
	go func() {
		for range messages {
			if err := stream.Send(&message{Value: b}); err != nil && err != io.EOF { // Recv returns the cause of EOF
				sent <- err
				return
			}
		}
		sent <- stream.CloseSend()
	}()
	for i := range messages {
		m, err := stream.Recv()
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if !bytes.Equal(m.Value, b) {
			return fmt.Errorf("message %d differs from what was sent", i)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		return fmt.Errorf("after the last message: %w", err)
	}
	return <-sent
}

// load keeps inFlight requests in flight for each client until stop, which gets their number, returns true. Each
// request has a deadline. One of 32 is large, one of four is a stream of eight messages. load calls failed for errors.
func (r *rig) load(inFlight int, deadline time.Duration, stop func(done int) bool, failed func(error)) {
	var all sync.WaitGroup
	for i, c := range r.clients {
		for j := range inFlight {
			all.Go(func() {
				for done := 0; !stop(done); done++ {
					number := i*inFlight + j + done
					if err := request(c, number, deadline); err != nil {
						failed(fmt.Errorf("client %d, request %d: %w", i, number, err))
					}
				}
			})
		}
	}
	all.Wait()
}

func request(c *grpc.ClientConn, number int, deadline time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	size := small
	if number%32 == 0 {
		size = large
	}
	if number%4 == 1 {
		return streaming(ctx, c, size, 8)
	}
	return unary(ctx, c, size)
}

// TestLarge makes a call and a stream with large messages.
func TestLarge(t *testing.T) {
	r := newRig(t, 1, verbstest.Timeouts{})
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	if err := unary(ctx, r.clients[0], large); err != nil {
		t.Error(err)
	}
	if err := streaming(ctx, r.clients[0], large, 4); err != nil {
		t.Error(err)
	}
}

// TestLoad has 64 requests in flight, on one connection, and spread over 64 and 256 connections.
func TestLoad(t *testing.T) {
	for _, test := range []struct{ connections, inFlight, requests int }{{1, 64, 8}, {64, 1, 8}, {256, 1, 2}} {
		t.Run(fmt.Sprintf("%dx%d", test.connections, test.inFlight), func(t *testing.T) {
			r := newRig(t, test.connections, verbstest.Timeouts{})
			enough := func(done int) bool { return done == test.requests }
			r.load(test.inFlight, deadline, enough, func(err error) { t.Error(err) })
		})
	}
}

// TestDeadline makes a call that the server does not reply to, since it cannot be reached.
func TestDeadline(t *testing.T) {
	r := newRig(t, 1, verbstest.Timeouts{Reply: 50 * time.Millisecond, Repeats: 4, Ack: 14})
	if err := unary(t.Context(), r.clients[0], small); err != nil {
		t.Fatal(err)
	}
	heal := r.net.Partition(r.here, r.there)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := unary(ctx, r.clients[0], small); err == nil || ctx.Err() == nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("a call without a network: %v", err)
	}
	heal()
	ctx, cancel = context.WithTimeout(t.Context(), deadline)
	defer cancel()
	for ctx.Err() == nil && unary(ctx, r.clients[0], small) != nil { // until gRPC has connected again
	}
	if ctx.Err() != nil {
		t.Error("no call succeeds after the network has returned")
	}
}
