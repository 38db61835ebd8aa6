// Connectx runs ConnectX adapters for virtual machines: one for each -socket,
// on one network.
//
//	connectx -link roce -socket /tmp/a -socket /tmp/b -control /tmp/control &
//	go run -C testbed ./vm/cmd/vm -kernel 6.12 -vfio-user /tmp/a -modules mlx5_ib -- ibv_devinfo
//
// It prints a line for each socket when it is ready, and runs until it is
// interrupted. It reports mistakes of drivers and programs on standard error.
// The exit status is 1 if a rule of the programmer's reference was broken, and
// 2 if the program failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
	"github.com/goverbs/goverbs/testbed/connectx/world"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return 0
	}
	p := &program{options: o, stderr: stderr}
	if err == nil {
		err = p.run(ctx, stdout)
	}
	if err != nil {
		fmt.Fprintln(stderr, "connectx:", err)
		return 2
	}
	if p.violations > 0 {
		return 1
	}
	return 0
}

// program is a running world.
type program struct {
	*options
	violations int

	mu     sync.Mutex // of stderr: the world and its network cards report errors
	stderr io.Writer
}

func (p *program) say(what any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprintln(p.stderr, what)
}

// run runs the world until the context ends.
func (p *program) run(ctx context.Context, stdout io.Writer) (err error) {
	var closing []func() error // in reverse order
	defer func() {
		for _, f := range slices.Backward(closing) {
			err = errors.Join(err, f())
		}
	}()
	c := world.Config{
		Sockets: p.sockets, Devices: len(p.sockets), LinkLayer: p.link, Seed: p.seed, Adapt: p.adapt,
		Report: func(err error) { p.say(err) },
		Violation: func(device string, v engine.Violation) {
			p.violations++
			p.say(device + ": " + world.Describe(v))
		},
	}
	if p.trace != "" {
		f, err := os.Create(p.trace)
		if err != nil {
			return err
		}
		c.Tracer = trace.New(f)
		closing = append(closing, func() error { return errors.Join(c.Tracer.Err(), f.Close()) })
	}
	w, err := world.Start(c)
	if err != nil {
		return err
	}
	closing = append(closing, w.Close)
	if p.pcap != "" {
		stop, err := capture(w, p.pcap)
		if err != nil {
			return err
		}
		closing = append(closing, stop)
	}
	for i, socket := range p.nics {
		if err := p.listen(w, fmt.Sprintf("nic%d", i), socket); err != nil {
			return err
		}
	}
	return p.serve(ctx, w, stdout)
}

// capture writes the switch's frames to a file.
func capture(w *world.World, name string) (stop func() error, err error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	var c *fabric.Capture
	w.Loop.Run(func() { c, err = w.Switch.Capture(f) })
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		w.Loop.Run(func() { err = c.Stop() })
		return errors.Join(err, f.Close())
	}, nil
}

// listen opens a socket for QEMU's network cards.
func (p *program) listen(w *world.World, name, socket string) error {
	l, err := vfiouser.Listen(socket)
	if err != nil {
		return err
	}
	return w.Switch.Listen(name, l, func(err error) { p.say(fmt.Errorf("%s: %w", name, err)) })
}

// serve prints the sockets and waits for the end of the context.
func (p *program) serve(ctx context.Context, w *world.World, stdout io.Writer) error {
	said := func() {
		for _, d := range w.Devices {
			fmt.Fprintf(stdout, "%s is at %s\n", d.Name, d.Socket)
		}
	}
	if p.control == "" {
		said()
		<-ctx.Done()
		return nil
	}
	l, err := vfiouser.Listen(p.control)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- w.Control.Serve(ctx, l) }()
	said()
	return <-ended
}
