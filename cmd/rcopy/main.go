// Rcopy copies a file to another machine over an rsocket. It has the protocol, options and output of rdma-core's rcopy,
// so either end can be the C program.
//
// Server, then client:
//
//	rcopy
//	rcopy source server-host[:destination]
//
// The destination is the path of the source by default. As in C, the server writes any file that its user may write,
// for any client: use it in a trusted network only.
//
// Unlike the C program it copies empty files, accepts IPv6 addresses in brackets, ends with an error if the copy is
// incomplete, and cleanly on SIGINT.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() { program.Main("rcopy", run) }

func run(ctx context.Context, args []string, out io.Writer) error {
	port := "7427"
	table := []getopt.Option{getopt.Short('p', "port_number", "port (default 7427)", getopt.String(&port))}
	operands, err := getopt.Parse(args, table)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		const head = "rcopy [-p port]\nrcopy source server[:destination] [-p port]\n"
		if _, err := io.WriteString(out, head); err != nil {
			return err
		}
		return getopt.Usage(out, table)
	case err != nil:
		return err
	case len(operands) == 0:
		return serve(ctx, port, out)
	case len(operands) == 2:
		host, path := destination(operands[1], operands[0])
		return send(ctx, host, port, operands[0], path, out)
	}
	return fmt.Errorf("%d operands: give a source and server[:destination], or none for the server", len(operands))
}

// destination splits server[:destination]. Before a destination, an IPv6 address is in brackets.
func destination(s, source string) (host, path string) {
	if address, rest, ok := strings.Cut(s, "]"); ok && strings.HasPrefix(s, "[") {
		host, path = address[1:], strings.TrimPrefix(rest, ":")
	} else if _, err := netip.ParseAddr(s); err == nil {
		host = s
	} else {
		host, path, _ = strings.Cut(s, ":")
	}
	if path == "" {
		path = source
	}
	return host, path
}
