// Package kit has what the small programs of bench share.
package kit

import (
	"errors"
	"fmt"
	"os"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// Main calls run with the arguments of the program. It prints an error and exits with status 1.
func Main(name string, run func(args []string) error) {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// OnDevice calls f with a device, which it closes afterwards.
func OnDevice(name string, f func(*uverbs.Context) error) (err error) {
	ctx, err := uverbs.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ctx.Close()) }()
	return f(ctx)
}

// CreateLoop creates a QP that is connected to itself.
func CreateLoop(pd *uverbs.PD, cfg uverbs.QPConfig) (*uverbs.QP, error) {
	q, err := pd.CreateQP(cfg)
	if err != nil {
		return nil, err
	}
	self, err := q.Endpoint()
	if err != nil {
		return nil, err
	}
	return q, q.Connect(self)
}
