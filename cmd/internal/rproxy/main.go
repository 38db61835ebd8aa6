// Package rproxy is the program rproxy, which cmd/rproxy documents.
package rproxy

import (
	"context"
	"errors"
	"io"
	"log"
	"os"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

const name = "rproxy"

// Main is the main function of the program.
func Main() {
	program.Main(name, func(ctx context.Context, args []string, out io.Writer) error {
		return run(ctx, args, out, os.Stderr)
	})
}

func run(ctx context.Context, args []string, out, messages io.Writer) error {
	o, err := parseOptions(args)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return usage(out)
	case err != nil:
		return err
	}
	p := &proxy{options: o, log: log.New(messages, name+": ", 0)}
	return p.serve(ctx)
}
