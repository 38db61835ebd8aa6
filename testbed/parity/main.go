// Parity runs rdma-core's Python tests (pyverbs) and the Go tests of the same names
// one after the other in the same guest, and writes the results to docs/parity.md:
//
//	go run -C testbed ./parity -write
//	go run -C testbed ./parity -write -only 'rxe 6.1,mlx5 RoCE 6.12'
//	go run -C testbed ./parity -write -module test_mlx5_dc
//
// The devices are rxe and the software ConnectX, in RoCE mode and on InfiniBand.
// With -only it runs at the given places and keeps the page's results of the other
// places. With -go it runs only the Go tests and keeps the page's results of C. With
// -module it runs one module, which has Go tests, and keeps the page's results of the others.
// Without -write it prints the page. It always prints the counts.
//
// It exits with status 1 if fewer tests pass with Go than with C, if a test that
// passes with C has no Go test or one that does not pass, or if fewer tests pass with
// C than before.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// page is the path of the page in the repository.
const page = "docs/parity.md"

func main() {
	write := flag.Bool("write", false, "write "+page+" instead of printing it")
	root := flag.String("C", "..", "the repository's root")
	only := flag.String("only", "", "run at these `places` alone, comma-separated, as in \"mlx5 IB 6.12\"")
	var x extent
	flag.BoolVar(&x.golang, "go", false, "run the Go tests alone")
	flag.StringVar(&x.module, "module", "", "run this `module` alone, as in \"test_mlx5_dc\"")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *only, *write, x); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

// An extent says which tests run at a place.
type extent struct {
	golang bool   // the Go tests alone
	module string // one module alone, or ""
}

// has reports whether the tests of a module run.
func (x extent) has(module string) bool { return x.module == "" || x.module == module }

func run(ctx context.Context, root, only string, write bool, x extent) (err error) {
	if x.module != "" && suiteOf(x.module).goTest == "" {
		return fmt.Errorf("module %s has no Go tests", x.module)
	}
	places, err := choose(only)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "goverbs-parity")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	binaries, err := build(ctx, root, dir)
	if err != nil {
		return err
	}
	file := filepath.Join(root, page)
	r := newReport()
	if only != "" || x != (extent{}) {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if r, err = parse(string(text)); err != nil {
			return err
		}
	}
	for _, p := range places {
		r.forget(p, x)
		if err := r.visit(ctx, p, x, binaries); err != nil {
			return err
		}
	}
	if write {
		err = os.WriteFile(file, []byte(r.render()), 0o644)
	} else {
		_, err = fmt.Print(r.render())
	}
	fmt.Fprint(os.Stderr, r.summary(places...))
	return errors.Join(err, r.behind(places...))
}

// visit runs the tests at one place: on rxe those of all modules, on the ConnectX
// those of modules that have Go tests, as far as x has them.
func (r *report) visit(ctx context.Context, p place, x extent, binaries map[string]string) (err error) {
	b, err := bed.Ensure(ctx, os.Stderr, bed.Root)
	if err != nil {
		return err
	}
	modules := withGo()
	library, all, err := pyverbs.Inspect(b)
	if err != nil {
		return err
	}
	r.library = library
	switch {
	case x.golang:
		modules = nil
	case x.module != "":
		modules = []string{x.module}
	case p.device == rxe:
		modules = all
	}
	g, end, err := p.boot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	return r.measure(ctx, g, p, modules, x, binaries, os.Stderr)
}
