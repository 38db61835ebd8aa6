package program

import (
	"errors"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/internal/getopt"
)

// Example runs f, of one of rdma-core's examples: it prints "name: start" before and "name: end" with the status after
// it, as they do. The programs have options only; hint says which one to use instead of an operand.
func Example(name string, args []string, options []getopt.Option, hint string, out io.Writer, f func() error) error {
	operands, err := getopt.Parse(args, options)
	switch {
	case errors.Is(err, getopt.ErrHelp):
		return getopt.Usage(out, options)
	case err != nil:
		return err
	case len(operands) > 0:
		return fmt.Errorf("unexpected argument %q%s", operands[0], hint)
	}
	fmt.Fprintf(out, "%s: start\n", name)
	err = f()
	status := 0
	if err != nil {
		status = -1
	}
	fmt.Fprintf(out, "%s: end %d\n", name, status)
	return err
}
