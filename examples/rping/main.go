// Rping lets a server fetch a text from a client's memory and write it back,
// again and again: by RDMA READ and WRITE over a connection that is made by IP
// address. It speaks the protocol of rping of rdma-core, takes its options and
// prints its lines, so that either end can be the C program.
//
// Server, then client:
//
//	rping -s -v
//	rping -c -v -C 10 -a server-host
//
// Each ping takes four messages of 16 bytes, in which the client names memory:
// "this is the text", to which the server READs it and answers, and "bring it
// here", to which the server WRITEs it and answers.
//
// Beyond the C program it checks the text at the server too (with -V), ends
// cleanly on SIGINT, and fails with a status other than 0 whenever a ping does
// not come to its end.
package main

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/examples/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { program.Main("rping", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	opt, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	case opt.server:
		return runServer(ctx, opt, out)
	}
	return runClient(ctx, opt, out)
}
