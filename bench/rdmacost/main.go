// Rdmacost measures what package rdma costs beside the same work on package cm, in CPU time of the process: both ends
// of a connection of a device with itself. If the clock counts instructions (QEMU's -icount), the figures are
// instructions, and nanoseconds otherwise.
//
//	rdmacost -addr 10.9.0.1
//	rdmacost -addr 10.9.0.1 -level sealed
//	rdmacost -addr 10.9.0.1 -level calls
//	rdmacost -addr 10.9.0.1 -tail 2000 -level cm
//	rdmacost -addr 10.9.0.1 -tail 2000 -gogc 100 -polling 1ms
//	rdmacost -addr 10.9.0.1 -idle 10000 -level rdma -depth 4 -eager 256 -shared 4096
//
// Each figure is the median of several rounds, for one operation: rdma's, cm's and their ratio. With -level, only
// that level is measured; rsocket and tcp are the same work on package rsocket, and on TCP with package net; sealed
// is rdma with Options.Seal, beside TLS on package rsocket; calls are messages of several lengths and their replies
// of 64 bytes, by Send and Recv, by Call, by Call with a Handler, and by CallBuffer from the program's memory. With
// -tail, figures are quantiles of the times of single operations of one level, in microseconds, of small messages
// also beside a goroutine that churns the heap. With -idle, one level is measured beside idle connections, whose
// clients are in another process: what the process uses while nothing happens, and then small messages of one
// connection.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/goverbs/goverbs/bench/measure"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
)

var (
	polling   = flag.Duration("polling", 0, "rdma.Options.Polling of -level rdma")
	keepAlive = flag.Duration("keepalive", 0, "Options.KeepAlive of -level rdma, or Config.KeepAlive of rsocket")
	depth     = flag.Int("depth", 0, "rdma.Options.Depth of -level rdma")
	eager     = flag.Int("eager", 0, "rdma.Options.EagerSize of -level rdma")
	shared    = flag.Int("shared", 0, "rdma.ListenOptions.SharedReceives of -level rdma")
	buffer    = flag.Int("buffer", 0, "rsocket.Config.RecvBuffer and SendBuffer of -level rsocket")
)

func main() {
	level := flag.String("level", "", "measure one: rdma, cm, rsocket, tcp, sealed or calls (default rdma, with -tail)")
	measure.Main("rdmacost", func(addr string, tails bool) ([]*measure.Level, error) {
		// A clock that counts instructions leaps while the machine idles, so there are no deadlines.
		return open(context.Background(), addr, *level, tails)
	})
}

func open(ctx context.Context, addr, level string, tails bool) ([]*measure.Level, error) {
	switch {
	case level == "tcp":
		return one(newTCP(addr))
	case level == "cm":
		return one(newHand(ctx, addr))
	case level == "rdma" || level == "" && tails:
		o := rdma.Options{Depth: *depth, EagerSize: *eager, Polling: *polling, KeepAlive: *keepAlive}
		return one(newEasy(ctx, addr, &rdma.ListenOptions{Options: o, SharedReceives: *shared}))
	case level == "rsocket":
		return one(newRsocket(addr))
	case level == "sealed":
		return sealed(ctx, addr)
	case level == "calls" && !tails:
		return newCalls(ctx, addr)
	case level != "":
		return nil, fmt.Errorf("unknown level %q", level)
	}
	return both(ctx, addr)
}

func one(l *measure.Level, err error) ([]*measure.Level, error) { return []*measure.Level{l}, err }

// both returns rdma and cm. Large messages of rdma are with receives of this length, as cm's are, and by an offer, as
// is the default.
func both(ctx context.Context, addr string) ([]*measure.Level, error) {
	easy, err := newEasy(ctx, addr, &rdma.ListenOptions{Options: rdma.Options{KeepAlive: -1}})
	if err != nil {
		return nil, err
	}
	eager, err := newEasy(ctx, addr, &rdma.ListenOptions{Options: rdma.Options{KeepAlive: -1,
		EagerSize: measure.LargeSize, Depth: slots}})
	if err != nil {
		return nil, err
	}
	hand, err := newHand(ctx, addr)
	if err != nil {
		return nil, err
	}
	easy.Name, hand.Name, easy.Eager, hand.Eager = "_rdma", "_cm", eager.Conn, hand.Conn
	closeEasy := easy.Close
	easy.Close = func() error { return errors.Join(closeEasy(), eager.Conn.Close(), eager.Close()) }
	return []*measure.Level{easy, hand}, nil
}
