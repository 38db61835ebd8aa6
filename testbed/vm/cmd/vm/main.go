// Vm runs commands in guests of the test bed.
//
//	go run -C testbed ./vm/cmd/vm -kernel 6.12 -rxe -- ibv_devinfo -v
//
// Without a command it runs a shell. An argument with a leading "@" is a file
// of the host: it is copied into the guest, and replaced by its path there.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// options are the command line.
type options struct {
	setup, update, verify, list bool
	config                      vm.Config
	args                        []string
	console, dmesg              bool
	uid, gid                    uint
	timeout                     time.Duration
}

func main() {
	o := parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	status, err := o.run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", strings.TrimPrefix(err.Error(), "vm: "))
		status = max(status, 1)
	}
	os.Exit(status)
}

func parse() options {
	var o options
	var modules, kernelArgs, qemuArgs string
	flag.BoolVar(&o.setup, "setup", false, "only set up the bed (the named parts, or all)")
	flag.BoolVar(&o.update, "update", false,
		"set up the bed again with the newest packages, and remove parts of older recipes")
	flag.BoolVar(&o.verify, "verify", false, "check every file of the bed")
	flag.BoolVar(&o.list, "list", false, "list the parts of the bed")
	flag.StringVar(&o.config.Kernel, "kernel", "6.12", "kernel: "+bed.Kernels())
	flag.StringVar(&o.config.Arch, "arch", "amd64", "architecture of the guest: amd64 or arm64")
	flag.IntVar(&o.config.CPUs, "cpus", 2, "number of CPUs")
	flag.IntVar(&o.config.MemoryMB, "memory", 1024, "memory in MB")
	flag.BoolVar(&o.config.ICount, "icount", false, "make the guest's clock count instructions (one CPU)")
	flag.BoolVar(&o.config.RXE, "rxe", false, "create rxe0 on d0, 10.9.0.1/24")
	flag.BoolVar(&o.config.SIW, "siw", false, "create siw0 on d0, 10.9.0.1/24, with -kernel 6.12-siw")
	flag.BoolVar(&o.config.Preload, "preload", false, "mount iperf3, redis-server and others: /run/preload/rsrun PROGRAM")
	flag.BoolVar(&o.config.Apps, "apps", false, "a root with UCX, Open MPI, NFS and fio, downloaded when first used")
	flag.BoolVar(&o.config.Fabric, "fabric", false, "mount libfabric: /run/fabric/usr/bin/fi_info")
	flag.StringVar(&o.config.Share, "share", "", "directory of the host for /share in the guest")
	flag.Func("vfio-user", "add the device model that listens on this `socket` (repeatable)", func(socket string) error {
		o.config.VFIOUser = append(o.config.VFIOUser, socket)
		return nil
	})
	flag.StringVar(&modules, "modules", "", "additional kernel modules, comma-separated")
	flag.StringVar(&kernelArgs, "kernel-args", "", "additional kernel arguments, space-separated")
	flag.StringVar(&qemuArgs, "qemu-args", "", "further QEMU arguments, space-separated")
	flag.BoolVar(&o.console, "console", false, "show the serial console on standard error")
	flag.BoolVar(&o.dmesg, "dmesg", false, "show the kernel's log on standard error after the command")
	flag.UintVar(&o.uid, "uid", 0, "run the command as this user")
	flag.UintVar(&o.gid, "gid", 0, "run the command as this group")
	flag.DurationVar(&o.timeout, "timeout", 0, "bound the command's time")
	flag.Parse()
	o.args = flag.Args()
	o.config.Root = o.config.Arch == "amd64"
	o.config.Modules = strings.FieldsFunc(modules, func(r rune) bool { return r == ',' })
	o.config.KernelArgs = strings.Fields(kernelArgs)
	o.config.QEMUArgs = strings.Fields(qemuArgs)
	if o.console {
		o.config.Console = os.Stderr
	}
	return o
}

func (o options) run(ctx context.Context) (int, error) {
	var parts []bed.Part
	for _, p := range o.args {
		parts = append(parts, bed.Part(p))
	}
	switch {
	case o.list:
		return 0, bed.List(os.Stdout)
	case o.update:
		_, err := bed.Update(ctx, os.Stderr, parts...)
		return 0, err
	case o.setup:
		_, err := bed.Ensure(ctx, os.Stderr, parts...)
		return 0, err
	case o.verify:
		b, err := bed.Ensure(ctx, os.Stderr, parts...)
		if err != nil {
			return 1, err
		}
		return 0, b.Verify(ctx)
	}
	return o.guest(ctx)
}

// guest boots a guest and runs the command, or a shell.
func (o options) guest(ctx context.Context) (status int, err error) {
	parts, err := o.config.Parts()
	if err != nil {
		return 2, err
	}
	b, err := bed.Ensure(ctx, os.Stderr, parts...)
	if err != nil {
		return 2, err
	}
	g, err := vm.Boot(ctx, b, o.config)
	if err != nil {
		return 2, err
	}
	defer func() {
		if closeErr := g.Close(); closeErr != nil && err == nil {
			status, err = 2, closeErr
		}
	}()
	if o.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.timeout)
		defer cancel()
	}
	if len(o.args) == 0 {
		status, err = o.shell(ctx, g)
	} else {
		status, err = o.command(ctx, g)
	}
	if o.dmesg && g.Err() == nil {
		text, dmesgErr := g.Dmesg(ctx)
		fmt.Fprintln(os.Stderr, text)
		err = errors.Join(err, dmesgErr)
	}
	return status, err
}

// command runs the command with this program's standard streams.
func (o options) command(ctx context.Context, g *vm.Guest) (int, error) {
	args := append([]string(nil), o.args...)
	for i, a := range args {
		if name, ok := strings.CutPrefix(a, "@"); ok {
			path, err := g.Install(name)
			if err != nil {
				return 2, err
			}
			args[i] = path
		}
	}
	c := g.CommandContext(ctx, args[0], args[1:]...)
	c.Stdout, c.Stderr = os.Stdout, os.Stderr
	c.UID, c.GID = uint32(o.uid), uint32(o.gid)
	if info, err := os.Stdin.Stat(); err == nil && info.Mode()&os.ModeCharDevice == 0 {
		c.Stdin = os.Stdin // a pipe or a file
	}
	return exitStatus(c.Run())
}

// exitStatus returns the status that a shell would return for an ExitError.
func exitStatus(err error) (int, error) {
	var exit *vm.ExitError
	switch {
	case !errors.As(err, &exit):
		return 0, err
	case exit.Status.Signaled():
		return 128 + int(exit.Status.Signal()), nil
	}
	return exit.ExitCode(), nil
}
