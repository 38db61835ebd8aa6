package vm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/bed"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// Boot starts a guest, and returns when it can run commands (with Config.Init:
// when it was started). ctx bounds the boot only; the guest runs until Close,
// or until this process ends.
func Boot(ctx context.Context, b *bed.Bed, c Config) (*Guest, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	if wantKVM(c) {
		g, err := bootKVM(ctx, b, c)
		if err == nil || ctx.Err() != nil {
			return g, err
		}
		c.Logf("%s is set, but KVM does not work here; using emulation: %v", EnvKVM, err)
	}
	return boot(ctx, b, c)
}

// kvmBroken records that KVM does not work on this machine.
var kvmBroken struct {
	sync.Mutex
	err error
}

// wantKVM reports whether KVM is requested and not known to fail.
func wantKVM(c Config) bool {
	kvmBroken.Lock()
	defer kvmBroken.Unlock()
	return os.Getenv(EnvKVM) == "1" && kvmBroken.err == nil && !c.ICount && c.Arch == "amd64" && c.Init == ""
}

// bootKVM tries KVM by a boot with a short timeout, which is the only reliable
// test.
func bootKVM(ctx context.Context, b *bed.Bed, c Config) (*Guest, error) {
	c.kvm, c.BootTimeout = true, 20*time.Second
	g, err := boot(ctx, b, c)
	if err != nil && ctx.Err() == nil {
		kvmBroken.Lock()
		defer kvmBroken.Unlock()
		kvmBroken.err = err
	}
	return g, err
}

func boot(ctx context.Context, b *bed.Bed, c Config) (*Guest, error) {
	dir, err := newRunDir(filepath.Join(b.Cache(), "run"))
	if err != nil {
		return nil, fmt.Errorf("vm: %w", err)
	}
	g := &Guest{config: c, dir: dir, dead: make(chan struct{}), commands: make(map[uint32]*Cmd)}
	g.console = newConsole(c.Console, g.kernelTrouble)
	if err := g.launch(ctx, b); err != nil {
		return nil, errors.Join(fmt.Errorf("vm: kernel %s: %w", c.Kernel, err), dir.remove())
	}
	if c.Init != "" {
		return g, nil
	}
	if err := g.awaitHello(ctx); err != nil {
		g.fail(err)
		return nil, errors.Join(fmt.Errorf("vm: kernel %s does not boot: %w", c.Kernel, g.Err()), g.free())
	}
	go g.heartbeat()
	return g, nil
}

// launch starts QEMU, and the goroutines that serve its sockets.
func (g *Guest) launch(ctx context.Context, b *bed.Bed) (err error) {
	q := &commandLine{}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.abandon())
		}
	}()
	if err := g.prepare(ctx, b, q); err != nil {
		return err
	}
	argv, env, err := b.QEMUCommand(g.config.Arch)
	if err != nil {
		return err
	}
	g.launched = time.Now()
	if g.qemu, err = startProcess(append(argv, q.args...), env, q.files); err != nil {
		return err
	}
	if err := q.close(); err != nil {
		return errors.Join(err, g.qemu.kill())
	}
	g.localEnds = q.localEnds
	g.serve()
	return nil
}

// prepare writes the initramfs and builds QEMU's command line.
func (g *Guest) prepare(ctx context.Context, b *bed.Bed, q *commandLine) error {
	c := g.config
	part, err := bed.KernelPart(c.Kernel, c.Arch)
	if err != nil {
		return err
	}
	kernel, err := b.Kernel(part)
	if err != nil {
		return err
	}
	modules, err := c.modules(kernel)
	if err != nil {
		return err
	}
	init, err := c.firstProcess(ctx, b.Cache())
	if err != nil {
		return err
	}
	initramfs := filepath.Join(g.dir.path, "initramfs")
	if err := writeInitramfs(initramfs, c, init, modules); err != nil {
		return err
	}
	g.files = filepath.Join(g.dir.path, "files")
	if err := os.Mkdir(g.files, 0o755); err != nil {
		return err
	}
	q.machine(c, kernel, initramfs)
	if err := g.connect(b, q); err != nil {
		return err
	}
	parts, err := c.Parts()
	if err != nil {
		return err
	}
	for _, p := range parts { // keep the trees while QEMU runs
		f, err := b.InUse(p)
		if err != nil {
			return err
		}
		q.inherit(f)
	}
	q.add(c.QEMUArgs...)
	return nil
}

// connect adds console, monitor, agent and network.
func (g *Guest) connect(b *bed.Bed, q *commandLine) error {
	var err error
	if g.consoleEnd, err = q.chardev("console"); err != nil {
		return err
	}
	q.add("-serial", "chardev:console")
	monitor, err := q.chardev("monitor")
	if err != nil {
		return err
	}
	q.add("-mon", "chardev=monitor,mode=control")
	g.qmp = newMonitor(monitor)
	if g.config.Init == "" {
		if g.agent, err = q.agentPort(g.config, b, g.files); err != nil {
			return err
		}
	}
	for i, n := range g.config.NICs {
		if err := q.nic(i, n); err != nil {
			return err
		}
	}
	return q.vfioUser(g.config)
}

// serve starts the goroutines that read from QEMU and the guest.
func (g *Guest) serve() {
	g.background.Go(func() {
		if err := g.console.follow(g.consoleEnd); err != nil {
			g.fail(fmt.Errorf("reading the guest's console: %w", err))
		}
	})
	g.background.Go(g.watchQEMU)
	g.background.Go(g.qmp.follow)
	if g.agent != nil {
		g.hello = make(chan wire.HelloReport, 1)
		g.background.Go(g.followAgent)
	}
}

// awaitHello waits until the agent is ready.
func (g *Guest) awaitHello(ctx context.Context) error {
	timer := time.NewTimer(g.config.BootTimeout)
	defer timer.Stop()
	select {
	case h := <-g.hello:
		if h.Version != wire.Version {
			return fmt.Errorf("the guest's agent speaks version %d of the protocol, not %d", h.Version, wire.Version)
		}
		g.release = h.Release
		return g.config.checkClock(h.Uptime, time.Since(g.launched))
	case <-g.dead:
		return g.Err()
	case <-ctx.Done():
		return g.withConsole(context.Cause(ctx))
	case <-timer.C:
		return g.withConsole(fmt.Errorf("no response after %v", g.config.BootTimeout))
	}
}

// checkClock compares the clock of a guest that has booted with the host's. The
// guest's clock started after the guest was launched, so it cannot be ahead.
func (c Config) checkClock(uptime, passed time.Duration) error {
	const tolerance = 500 * time.Millisecond
	if c.ICount || uptime <= passed+passed/10+tolerance {
		return nil
	}
	return fmt.Errorf("the guest's clock runs too fast: %v since its kernel started, but %v since the guest was launched;"+
		" the host was probably too busy for the kernel to calibrate its timers: reduce its load",
		uptime.Round(100*time.Millisecond), passed.Round(100*time.Millisecond))
}
