// Rnc is a netcat over RDMA: it connects standard input and output with a peer, over an rsocket. The peer may be a C
// program that runs with librspreload, such as nc. The options are those of OpenBSD's nc.
//
// Copy a file, receiver first:
//
//	rnc -l 7471 >copy
//	rnc -N server-host 7471 <file
//
// Unlike nc, rnc reports an error, and exits with a non-zero status, if the peer may not have received everything, or
// has ended without closing the connection.
package main

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() {
	program.Main("rnc", func(ctx context.Context, args []string, out io.Writer) error {
		return run(ctx, args, os.Stdin, out, os.Stderr)
	})
}

func run(ctx context.Context, args []string, in io.Reader, out, messages io.Writer) error {
	o, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	}
	n := &netcat{options: o, out: out, messages: messages}
	if !o.noInput && !o.scan {
		n.in = read(in)
	}
	if o.listen {
		return n.serve(ctx)
	}
	return n.connect(ctx)
}
