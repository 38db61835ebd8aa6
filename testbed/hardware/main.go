// Hardware runs the device tests and the benchmarks on an RDMA device of the machine
// and writes a report. See docs/hardware.md.
//
//	hardware -build DIR      # creates a directory that needs neither Go nor libraries
//	DIR/hardware -device mlx5_0 -address 192.168.0.7
//	DIR/hardware -device mlx5_0 -server mlx5_1
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "hardware:", err)
		os.Exit(1)
	}
}

// options holds the command-line options.
type options struct {
	build   string
	device  string
	server  string
	address string
	disturb bool
	report  string
	quick   bool
}

func parse(args []string) (*options, error) {
	o := &options{}
	flags := flag.NewFlagSet("hardware", flag.ContinueOnError)
	flags.StringVar(&o.build, "build", "", "make the folder of programs that this one needs beside it,"+
		" with itself in it, and nothing else")
	flags.StringVar(&o.device, "device", "", "the device to test: mlx5_0")
	flags.StringVar(&o.server, "server", "", "the device at the other end of the benchmarks (default: the same one)")
	flags.StringVar(&o.address, "address", "", "the device's IPv4 address: its tests of connections need one")
	flags.BoolVar(&o.disturb, "disturb", false, "also tests that set the network interface down and up,"+
		" and give it an address")
	flags.StringVar(&o.report, "report", "", "the file that is written (default: report-DEVICE.txt)")
	flags.BoolVar(&o.quick, "quick", false, "few messages in each benchmark: to see that it works")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case o.build == "" && o.device == "":
		return nil, errors.New("no device: use -device, such as -device mlx5_0; `rdma link` lists the devices")
	}
	if o.server == "" {
		o.server = o.device
	}
	if o.report == "" {
		o.report = "report-" + filepath.Base(o.device) + ".txt"
	}
	return o, nil
}

func run(ctx context.Context, args []string, out io.Writer) (err error) {
	o, err := parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	case o.build != "":
		return build(ctx, o.build)
	}
	on, err := probe(o.device)
	if err == nil && o.server != o.device {
		_, err = probe(o.server)
	}
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f, err := os.Create(o.report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b := &bench{options: o, dir: filepath.Dir(self), out: out, report: f}
	if err := b.all(ctx, on); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nThe full report is in %s.\n", o.report)
	if b.failed > 0 {
		return fmt.Errorf("%d of %d parts failed", b.failed, b.parts)
	}
	return nil
}
