// Rstream measures latency and bandwidth of rsockets. It has the protocol, options and output of rdma-core's rstream,
// so either end can be the C program.
//
// Server, then client:
//
//	rstream
//	rstream -s server-host
//
// In each iteration the client sends a number of transfers, and the server as many. Without -I, -C and -S, two series
// of tests run on a connection each, the first with one transfer at a time. With -T s, the connections are TCP's.
//
// Unlike the C program it ends with an error if its peer does, and cleanly on SIGINT. Without -T b, it polls without
// pause, as the C program does.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { program.Main("rstream", run) }

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	}
	connect := opt.dial
	if opt.server == "" {
		l, err := opt.listen(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, l.Close()) }()
		connect = l.accept
	}
	fmt.Fprintf(out, "%-10s%-8s%-8s%-8s%-8s%8s %10s%13s\n",
		"name", "bytes", "xfers", "iters", "total", "time", "Gb/sec", "usec/xfer")
	for _, series := range opt.series() {
		if err := runSeries(ctx, connect, opt, series, out); err != nil {
			return err
		}
	}
	return nil
}
