// Clients measures a server and its clients, two processes, with few and with many idle clients: the memory of a
// client, the cost to connect one, and the cost of a call of 64 bytes. A call has a reply of the same length.
//
//	clients -addr 10.9.0.1 -n 1000 own
//	clients -addr 10.9.0.1 -n 1000 shared
//	clients -addr 10.9.0.1 -n 1000 PROGRAM ARGUMENT...
//
// The first two are package rdma, whose clients have receives of their own, or share them
// (rdma.ListenOptions.SharedReceives). Others are programs that have the two parts, such as bench/grpc.
//
// Costs are CPU time of the two processes: instructions if the clock counts them (QEMU's -icount), and nanoseconds
// otherwise. The time of the kernel's threads, which exchange messages to connect, is not in them. connect is for each
// of the first and of the last 100 clients, with a call. call is the median of several rounds, of a client beside the
// others, and of one alone with a server of its own. Memory is in bytes for each client after the first one: what the
// server's devices access, which is locked, what is resident, the same of the clients' process, and by how much less
// the machine has available, with the kernel's memory of both.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/bench/kit"
	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/rdma"
)

func main() {
	addr := flag.String("addr", "", "address of the device")
	n := flag.Int("n", 1000, "number of clients")
	flag.Parse()
	kit.Main("clients", func([]string) error {
		args := flag.Args()
		if len(args) == 3 && kinds[args[0]] != nil {
			return kinds[args[0]].Run(args[1:], os.Stdin, os.Stdout)
		}
		if len(args) == 0 || *n <= 2*step {
			return fmt.Errorf("there is no program to measure, or not more than %d clients", 2*step)
		}
		if kinds[args[0]] != nil {
			args = append([]string{os.Args[0]}, args...)
		}
		return measureParts(os.Stdout, *addr, *n, args)
	})
}

// kinds are the ways in which this program itself is a server and its clients.
var kinds = map[string]*measure.Parts{"own": parts(0), "shared": parts(256)}

// parts returns a server that shares so many receives, and its clients.
func parts(shared int) *measure.Parts {
	ctx := context.Background() // a clock that counts instructions leaps while the machine idles: there are no deadlines
	o := rdma.Options{KeepAlive: -1}
	return &measure.Parts{
		Listen: func(addr string) (at string, close func() error, err error) {
			l, err := rdma.Listen(addr+":0", &rdma.ListenOptions{Options: o, SharedReceives: shared, MaxMemory: -1,
				MaxMemoryPerPeer: -1, MaxConns: -1, MaxConnsPerPeer: -1})
			if err != nil {
				return "", nil, err
			}
			ctx, stop := context.WithCancel(ctx)
			served := make(chan error, 1)
			go func() {
				served <- l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error {
					return c.ServeCalls(ctx, func(request []byte) []byte { return request })
				})
			}()
			return l.Addr().String(), func() error { stop(); return <-served }, nil
		},
		Dial: func(at string) (call, close func() error, err error) {
			c, err := rdma.Dial(ctx, at, &o)
			if err != nil {
				return nil, nil, err
			}
			request := make([]byte, measure.SmallSize)
			return func() error {
				m, err := c.Call(ctx, request)
				if err == nil && len(m.Bytes()) != len(request) {
					err = errors.New("the reply has another length")
				}
				m.Release()
				return err
			}, c.Close, nil
		},
	}
}
