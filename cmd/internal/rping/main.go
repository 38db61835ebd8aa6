// Package rping is the program rping, which cmd/rping documents.
package rping

import (
	"context"
	"errors"
	"io"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/internal/getopt"
	_ "github.com/goverbs/goverbs/provider/all"
)

// Main is the main function of the program.
func Main() { program.Main("rping", run) }

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
