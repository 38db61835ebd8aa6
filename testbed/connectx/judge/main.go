// Judge runs rdma-core's Python tests (pyverbs) on the software ConnectX, with
// the kernel's drivers and C's libmlx5, and writes the results to
// docs/evidence/soft-connectx-pyverbs.md:
//
//	go run -C testbed ./connectx/judge -write
//	go run -C testbed ./connectx/judge -write -only '6.12 ib,6.12 roce' -modules test_mr
//
// With -only it runs at the given places, with -modules it runs the given modules, and keeps the page's
// results of the others. Without -write it prints the page. It exits with status 1 if a test fails.
// The tests of this package compare a run with the page, and test the device
// with C programs.
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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/pyverbs"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// pageFile is the path of the page in the repository.
const pageFile = "docs/evidence/soft-connectx-pyverbs.md"

// leftOutTests are tests whose results do not count, with the reason: they need what the device does
// not have, and do not check for it.
var leftOutTests = map[string]string{
	"test_mlx5_dr.test_flow_meter":                    "flow meters",
	"test_mlx5_dr.test_flow_sampler":                  "flow counters",
	"test_mlx5_dr.test_root_reuse_action_and_matcher": "flow counters",
	"test_mlx5_dr.test_root_tbl_counter_action":       "flow counters",
	"test_mlx5_dr.test_tbl_counter_action":            "flow counters",
	"test_mlx5_mkey.test_mkey_interleaved":            "memory keys of interleaved memory",
	"test_mlx5_mkey.test_mkey_interleaved_new_api":    "memory keys of interleaved memory",
}

// counting returns the results that count. A test that is left out and passes is an error.
func counting(results []pyverbs.Result) (counted []pyverbs.Result, err error) {
	for _, v := range results {
		name := v.Module + "." + v.Name
		switch {
		case leftOutTests[name] == "":
			counted = append(counted, v)
		case v.Outcome == pyverbs.Pass:
			err = errors.Join(err, fmt.Errorf("%s passes: remove it from leftOutTests", name))
		}
	}
	return counted, err
}

// limit bounds the time of all tests at one place.
const limit = 15 * time.Minute

func main() {
	write := flag.Bool("write", false, "write "+pageFile+" instead of printing it")
	root := flag.String("C", "..", "the repository's root")
	only := flag.String("only", "", "run only at these `places`, comma-separated, such as \"6.12 ib\"")
	modules := flag.String("modules", "", "run only these `modules`, comma-separated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	if err := run(ctx, *root, *write, list(*only), list(*modules)); err != nil {
		fmt.Fprintln(os.Stderr, "judge:", err)
		os.Exit(1)
	}
}

// list returns the elements of a comma-separated list.
func list(s string) []string { return strings.FieldsFunc(s, func(r rune) bool { return r == ',' }) }

// choose returns the places of the given names, or all places if there are none.
func choose(names []string) (chosen []place, err error) {
	if len(names) == 0 {
		return places, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(places, func(p place) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("unknown place %q: the places are %v", name, places)
		}
		chosen = append(chosen, places[i])
	}
	return chosen, nil
}

func run(ctx context.Context, root string, write bool, only, modules []string) error {
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	file := filepath.Join(root, pageFile)
	r := newReport()
	if len(only)+len(modules) > 0 {
		page, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if r, err = parsePage(string(page)); err != nil {
			return err
		}
	}
	for _, p := range chosen {
		r.forget(p, modules)
		if err := r.visit(ctx, p, modules, os.Stderr); err != nil {
			return fmt.Errorf("kernel %s, link layer %s: %w", p.kernel, p.link, err)
		}
	}
	if write {
		err = os.WriteFile(file, []byte(r.render()), 0o644)
	} else {
		_, err = fmt.Print(r.render())
	}
	fmt.Fprint(os.Stderr, r.summary())
	return errors.Join(err, r.failures())
}

// visit runs modules at a place, or all if none are given.
func (r *report) visit(ctx context.Context, p place, modules []string, said io.Writer) error {
	if len(modules) == 0 {
		b, err := bed.Ensure(ctx, said, bed.Root)
		if err != nil {
			return err
		}
		if r.library, modules, err = pyverbs.Inspect(b); err != nil {
			return err
		}
	}
	here, there := split(p.kernel, modules)
	return errors.Join(r.visitDevice(ctx, p, here, world.OnDemand(p.kernel), said),
		r.visitDevice(ctx, p, there, world.AlwaysOnDemand, said))
}

// split returns the modules that run on the ordinary device, and those that need one with memory on demand.
func split(kernel string, modules []string) (others, demand []string) {
	for _, m := range modules {
		if world.NeedsOnDemand(kernel, m) {
			demand = append(demand, m)
		} else {
			others = append(others, m)
		}
	}
	return others, demand
}

// visitDevice runs modules at a place on a device with the given adaption.
func (r *report) visitDevice(ctx context.Context, p place, modules []string, adapt func(int, *connectx.Config),
	said io.Writer) (err error) {
	if len(modules) == 0 {
		return nil
	}
	dir, err := os.MkdirTemp("", "goverbs-judge")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	w, err := world.Start(world.Config{Dir: dir, LinkLayer: p.layer(), Devices: 1, Adapt: adapt,
		Report: func(err error) { fmt.Fprintln(said, err) }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	config := p.guest(w)
	parts, err := config.Parts()
	if err != nil {
		return err
	}
	b, err := bed.Ensure(ctx, said, parts...)
	if err != nil {
		return err
	}
	g, err := vm.Boot(ctx, b, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	return r.measure(ctx, p, g, modules, said)
}

// measure runs modules in a guest.
func (r *report) measure(ctx context.Context, p place, g *vm.Guest, modules []string, said io.Writer) error {
	r.releases[p.kernel] = g.Release()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if err := prepare(ctx, p, g); err != nil {
		return err
	}
	results, err := pyverbs.Run(ctx, g, modules, p.pyverbsArgs()...)
	results, stale := counting(results)
	err = errors.Join(err, stale)
	r.add(p, results)
	for _, v := range results {
		if v.Outcome != pyverbs.Pass {
			fmt.Fprintf(said, "kernel %s, link layer %s, %s.%s: %s: %s\n", p.kernel, p.link, v.Module, v.Name, v.Outcome, v.Why)
		}
	}
	if err != nil {
		return err
	}
	bad, err := g.Complaints(ctx)
	if err == nil && len(bad) > 0 {
		err = fmt.Errorf("kernel %s complained: %s", p.kernel, strings.Join(bad, "; "))
	}
	return err
}

// layer returns the device's link layer.
func (p place) layer() connectx.LinkLayer {
	if p.link == roce {
		return connectx.Ethernet
	}
	return connectx.InfiniBand
}

// guest returns the configuration of a guest with all devices of a world.
func (p place) guest(w *world.World) vm.Config {
	c := vm.Config{Kernel: p.kernel, Root: true, Modules: []string{"mlx5_ib", "ib_umad", "rdma_ucm"}}
	for _, d := range w.Devices {
		c.VFIOUser = append(c.VFIOUser, d.Socket)
	}
	return c
}

// address is the first device's address with RoCE.
const address = "10.9.0.1"

// prepare configures the loopback device and, with RoCE, the address of the
// first device.
func prepare(ctx context.Context, p place, g *vm.Guest) error {
	script := "ip link set lo up"
	if p.link == roce {
		script += " && dev=$(ls /sys/class/infiniband/mlx5_0/device/net) && ip addr add " + address +
			"/24 dev $dev && ip link set $dev up" +
			" && for i in $(seq 100); do grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state && exit 0; sleep 0.1;" +
			" done; exit 1"
	}
	out, err := g.CommandContext(ctx, "sh", "-c", script).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// pyverbsArgs returns the arguments for the device and, with RoCE, the GID of
// its IPv4 address for RoCE v2.
func (p place) pyverbsArgs() []string {
	args := []string{"--dev", "mlx5_0", "--port", "1"}
	if p.link == roce {
		args = append(args, "--gid", "3")
	}
	return args
}
