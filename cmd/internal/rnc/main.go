// Package rnc is the program rnc, which cmd/rnc documents.
package rnc

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

// Main is the main function of the program.
func Main() {
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
