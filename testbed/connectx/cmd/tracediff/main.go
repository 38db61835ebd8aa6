// Tracediff shows the first difference between two traces of a device.
//
//	tracediff [-kinds wqe,cqe] [-omit command.QUERY_QP] [-ignore addr,cqe.timestamp] [-context 3] A B
//
// Its exit status is 0 if the traces are the same, 1 if they differ, and 2 if
// they could not be compared.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("tracediff", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "usage: tracediff [flags] A B")
		flags.PrintDefaults()
	}
	kinds := flags.String("kinds", "", "kinds of events to compare, comma-separated; all if empty")
	omit := flags.String("omit", "", "events to skip, comma-separated: kind.name")
	ignore := flags.String("ignore", "", "fields to skip, comma-separated: field, kind.field, or kind.name.field")
	context := flags.Int("context", 3, "number of events to show before the difference and after its start")
	if flags.Parse(args) != nil {
		return 2
	}
	if flags.NArg() != 2 {
		flags.Usage()
		return 2
	}
	d, err := compare(flags.Arg(0), flags.Arg(1),
		trace.Options{Kinds: list(*kinds), Omit: list(*omit), Ignore: list(*ignore), Context: *context})
	switch {
	case err != nil:
		fmt.Fprintln(stderr, "tracediff:", err)
		return 2
	case d != nil:
		fmt.Fprint(stdout, d)
		return 1
	}
	return 0
}

func compare(a, b string, o trace.Options) (*trace.Difference, error) {
	first, err := os.Open(a)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	second, err := os.Open(b)
	if err != nil {
		return nil, err
	}
	defer second.Close()
	return trace.Compare(first, second, o)
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}
