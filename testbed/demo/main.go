// Demo boots a stock Debian kernel in an emulator and runs two Go processes in it
// that do RDMA over the kernel's rxe driver. The guest contains one static Go
// binary and kernel modules, and nothing else: no shell, no C library, no
// libibverbs. In a second guest a C program of rdma-core connects to a Go server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// finished is the last line that the guest prints if the demo succeeded. The guest
// has no exit status, because the kernel powers off.
const finished = "demo: all bytes arrived as they were sent"

// limit is the time limit in the guest. The demo takes a few seconds.
const limit = 3 * time.Minute

func main() {
	kernel := flag.String("kernel", "6.12", "kernel of the guest: 6.1, 6.12 or 7.2 (the rxe of 5.10 is refused)")
	arch := flag.String("arch", "amd64", "architecture of the guest: amd64, or arm64 with kernel 6.12")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *kernel, *arch); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, kernel, arch string) (err error) {
	dir, err := os.MkdirTemp("", "goverbs-demo")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "demo")
	if err := build(ctx, program, arch, "github.com/goverbs/goverbs/testbed/demo/guest"); err != nil {
		return err
	}
	console := &console{out: os.Stdout}
	config := vm.Config{Kernel: kernel, Arch: arch, Init: program, Console: console,
		Modules: []string{"rdma_rxe", "ib_uverbs", "dummy"}, BootTimeout: limit}
	if kernel != "7.2" {
		config.Modules = append([]string{"crc32_generic"}, config.Modules...)
	}
	parts, err := config.Parts()
	if err != nil {
		return err
	}
	b, err := bed.Ensure(ctx, os.Stderr, parts...)
	if err != nil {
		return err
	}
	fmt.Printf("demo: booting Linux %s (%s) in an emulator\n", kernel, arch)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g, err := vm.Boot(ctx, b, config)
	if err != nil {
		return err
	}
	err = g.Wait(ctx)
	if closeErr := g.Close(); err == nil {
		err = closeErr // for a guest that died, Close would return the same error
	}
	if err != nil {
		return err
	}
	if !console.finished {
		return errors.New("the guest ended before the demo did: see above")
	}
	if arch != "amd64" {
		return nil // the C programs exist only for amd64
	}
	return peer(ctx, kernel, dir)
}

// build builds a static program for the guest's architecture.
func build(ctx context.Context, program, arch, pkg string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", program, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building the guest's program: %w", err)
	}
	return nil
}

// A console prints the demo's own lines and records the last one. The guest keeps
// the kernel's messages in case the demo fails.
type console struct {
	out      *os.File
	line     []byte
	finished bool
}

func (c *console) Write(p []byte) (int, error) {
	for _, b := range p {
		if b != '\n' {
			c.line = append(c.line, b)
			continue
		}
		line := strings.TrimRight(string(c.line), "\r")
		c.line = c.line[:0]
		if i := strings.Index(line, "demo: "); i >= 0 {
			line = line[i:]
			fmt.Fprintln(c.out, line)
			c.finished = c.finished || line == finished
		}
	}
	return len(p), nil
}
