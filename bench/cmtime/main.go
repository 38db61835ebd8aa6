// Cmtime measures the steps of connecting. It is the Go counterpart of rdma_cm's
// cmtime(1), with the same steps and calls, so that the two can be compared.
//
//	cmtime -b 10.9.0.1 -c 1000             # server
//	cmtime -s 10.9.0.1 -c 1000             # client
//
// As in C, a client binds its ids only with -b.
//
// The C program passes its steps to a thread and waits for it with sched_yield.
// Here one goroutine does each step for all ids before the next step. The program
// creates and modifies the QPs itself, so the figures do not include what package
// cm does with QPs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/signal"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/provider/all"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cmtime:", err)
		os.Exit(1)
	}
}

// options holds the command-line options.
type options struct {
	bind, server netip.AddrPort // a client without -b has no bind
	count        int
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("cmtime", flag.ContinueOnError)
	bind := flags.String("b", "", "address to bind to (default of the server: 0.0.0.0)")
	server := flags.String("s", "", "address to connect to")
	port := flags.Uint("p", 7471, "port of the server")
	flags.IntVar(&o.count, "c", 100, "number of connections")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q: give the server's address with -s", flags.Arg(0))
	case o.count < 1:
		return o, fmt.Errorf("-c %d: at least one connection is needed", o.count)
	case *port > 0xffff:
		return o, fmt.Errorf("-p %d: a port is at most 65535", *port)
	}
	if *bind == "" && *server == "" {
		*bind = "0.0.0.0"
	}
	if *server == "" {
		o.bind, err = addrPort("-b", *bind, *port)
		return o, err
	}
	if *bind != "" {
		if o.bind, err = addrPort("-b", *bind, 0); err != nil {
			return o, err
		}
	}
	o.server, err = addrPort("-s", *server, *port)
	return o, err
}

func addrPort(option, addr string, port uint) (netip.AddrPort, error) {
	ip, err := netip.ParseAddr(addr)
	if err != nil {
		err = fmt.Errorf("%s: %w", option, err)
	}
	return netip.AddrPortFrom(ip, uint16(port)), err
}

func run(ctx context.Context, args []string) (err error) {
	o, err := parse(args)
	if err != nil {
		return err
	}
	ch, err := cm.NewEventChannel()
	if err != nil {
		return err
	}
	b := &bench{ch: ch, options: o}
	defer func() { err = errors.Join(err, b.close()) }()
	if o.server.IsValid() {
		return b.client(ctx)
	}
	return b.serve(ctx)
}
