// Parity runs rdma-core's Python tests (pyverbs) and the Go tests of the same names
// one after the other in the same guest, and writes the results to docs/evidence/parity.md:
//
//	go run -C testbed ./parity -write
//	go run -C testbed ./parity -write -only 'rxe 6.1,mlx5 RoCE 6.12'
//	go run -C testbed ./parity -write -module test_mlx5_dc
//
// The devices are rxe and the software ConnectX, in RoCE mode and on InfiniBand.
// With -only it runs at the given places and keeps the page's results of the other
// places. With -go it runs only the Go tests and keeps the page's results of C. With
// -module it runs the given modules, comma-separated, which have Go tests, and keeps the page's results of the others.
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
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// page is the path of the page in the repository.
const page = "docs/evidence/parity.md"

func main() {
	write := flag.Bool("write", false, "write "+page+" instead of printing it")
	root := flag.String("C", "..", "the repository's root")
	only := flag.String("only", "", "run at these `places` alone, comma-separated, as in \"mlx5 IB 6.12\"")
	var x extent
	flag.BoolVar(&x.golang, "go", false, "run the Go tests alone")
	module := flag.String("module", "", "run these `modules` alone, comma-separated, as in \"test_mlx5_dc\"")
	flag.Parse()
	if *module != "" {
		x.modules = strings.Split(*module, ",")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *only, *write, x); err != nil {
		fmt.Fprintln(os.Stderr, "parity:", err)
		os.Exit(1)
	}
}

// An extent says which tests run at a place.
type extent struct {
	golang  bool     // the Go tests alone
	modules []string // these modules alone; nil: all
}

// has reports whether the tests of a module run.
func (x extent) has(module string) bool {
	return x.modules == nil || slices.Contains(x.modules, module)
}

func run(ctx context.Context, root, only string, write bool, x extent) (err error) {
	for _, m := range x.modules {
		if suiteOf(m).goTest == "" {
			return fmt.Errorf("module %s has no Go tests", m)
		}
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
	if only != "" || x.golang || x.modules != nil {
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
func (r *report) visit(ctx context.Context, p place, x extent, binaries map[string]string) error {
	b, err := bed.Ensure(ctx, os.Stderr, bed.Root)
	if err != nil {
		return err
	}
	library, all, err := pyverbs.Inspect(b)
	if err != nil {
		return err
	}
	r.library = library
	if p.device == rxe {
		return r.boot(ctx, p, false, all, x, binaries)
	}
	var without, with []string
	for _, m := range withGo() {
		if world.NeedsOnDemand(p.kernel, m) {
			with = append(with, m)
		} else {
			without = append(without, m)
		}
	}
	return errors.Join(r.boot(ctx, p, false, without, x, binaries), r.boot(ctx, p, true, with, x, binaries))
}

// boot runs the tests of modules in a guest, as far as x has them. The device has memory on demand on each kernel if
// demand is set.
func (r *report) boot(ctx context.Context, p place, demand bool, modules []string, x extent,
	binaries map[string]string) (err error) {
	modules = slices.DeleteFunc(slices.Clone(modules), func(m string) bool { return !x.has(m) })
	if len(modules) == 0 {
		return nil
	}
	g, end, err := p.boot(ctx, demand)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	x.modules = modules
	if x.golang {
		modules = nil
	}
	return r.measure(ctx, g, p, modules, x, binaries, os.Stderr)
}
