// Parity runs rdma-core's Python tests (pyverbs) and the Go tests of the same
// names in guests of the test bed, one after the other in the same guest, and
// writes what came of them to docs/parity.md:
//
//	go run ./testbed/parity -write
//
// Without -write it prints the page; the counts of both it prints in any case.
// It exits with status 1 where fewer tests pass with Go than with C, or a test
// that passes with C has no Go test, or one that does not pass, or fewer pass
// with C than did.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
	"golang.org/x/sys/unix"
)

// page is the file that is written, from the module's root.
const page = "docs/parity.md"

// kernels are those of the page.
var kernels = []string{"6.1", "6.12", "7.2"}

func main() {
	write := flag.Bool("write", false, "write "+page+" instead of printing it")
	root := flag.String("C", ".", "the module's root")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *write); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root string, write bool) (err error) {
	dir, err := os.MkdirTemp("", "goverbs-parity")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binaries, err := build(ctx, root, dir)
	if err != nil {
		return err
	}
	r := newReport()
	for _, kernel := range kernels {
		if err := r.visit(ctx, kernel, binaries); err != nil {
			return err
		}
	}
	text := r.render()
	if write {
		err = os.WriteFile(filepath.Join(root, page), []byte(text), 0o644)
	} else {
		_, err = fmt.Print(text)
	}
	fmt.Fprint(os.Stderr, r.summary())
	return errors.Join(err, r.behind(kernels...))
}

// visit runs all tests on one kernel.
func (r *report) visit(ctx context.Context, kernel string, binaries map[string]string) (err error) {
	config := vm.Config{Kernel: kernel, Root: true, RXE: true}
	parts, err := config.Parts()
	if err != nil {
		return err
	}
	b, err := bed.Ensure(ctx, os.Stderr, parts...)
	if err != nil {
		return err
	}
	var modules []string
	if r.library, modules, err = pyverbs.Inspect(b); err != nil {
		return err
	}
	g, err := vm.Boot(ctx, b, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return r.measure(ctx, g, kernel, modules, binaries, os.Stderr)
}
