package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/bench/results"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// flags holds the flags with which gcc compiles a program for a guest.
type flags struct{ compile, link []string }

// rootFlags returns the flags for the RDMA libraries of guests, which it links into dir.
func rootFlags(ctx context.Context, dir string) (f flags, err error) {
	f.compile, f.link, err = bed.RDMAFlags(ctx, dir)
	return f, err
}

const libfabric = "fabric"

// fabricFlags returns the flags for libfabric of guests.
func fabricFlags(ctx context.Context) (f flags, err error) {
	set, err := bed.Ensure(ctx, os.Stderr, bed.Fabric)
	if err != nil {
		return f, err
	}
	tree, err := set.Tree(bed.Fabric)
	return flags{[]string{"-I" + filepath.Join(tree, "usr/include")},
		[]string{"-L" + filepath.Join(tree, "usr/lib/x86_64-linux-gnu")}}, err
}

// cost counts instructions, in a guest whose clock does. They are reproducible, so one
// round is enough for programs that run alone and do not wait. Objects wait for the
// kernel's workers.
func (b *bench) cost(ctx context.Context) error {
	return connectX(connectx.InfiniBand, func(sockets []string) error {
		return b.inGuest(ctx, vm.Config{VFIOUser: sockets, Modules: []string{"mlx5_ib"}, ICount: true, RXE: true,
			MemoryMB: 6144}, func(m *machine) error {
			if _, err := m.client.run(ctx, "sh", "-c", active); err != nil {
				return err
			}
			b.place("instructions", m, "a software ConnectX in a guest of one CPU whose clock counts instructions")
			b.place("instructions-rxe", m, "soft-RoCE in that guest")
			m.device = "mlx5_0"
			b.requests(ctx, m, "instructions", []int{1, 100, manyObjects})
			b.fail("instructions", results.OtherRequests, b.otherRequests(ctx, m, "instructions"))
			b.fail("instructions", "parallel posts", b.parallel(ctx, m, "instructions", parallelPosts...))
			b.fail("instructions", "memory", b.memory(ctx, m, "instructions"))
			// Objects of the ConnectX are created by commands, which wait for its process.
			m.device, m.address = "rxe0", "10.9.0.1"
			// And two programs that poll would wait for each other's time slices.
			b.fail("instructions-rxe", "objects", b.objects(ctx, m, "instructions-rxe", 1, 100))
			b.fail("instructions-rxe", "waits", b.waits(ctx, m, "instructions-rxe", 1, 100, manyObjects))
			b.play(ctx, m, "instructions-rxe", costGames(b.messages))
			return nil
		})
	})
}

func costGames(messages int) []game {
	return variants(messages, "send_lat -e", "read_lat -e", "send_bw -e", "read_bw -e")
}

// parallelPosts are numbers of queue pairs below and above that of BlueFlame registers.
var parallelPosts = []int{1, 4, 16, 64, 256}

// manyObjects is a realistic large number of objects.
const manyObjects = 10000

// unlimited runs a program without a limit on locked memory.
func unlimited(program ...string) []string {
	return append([]string{"sh", "-c", `ulimit -l unlimited; exec "$@"`, "sh"}, program...)
}

// wrcost builds the programs that measure requests, ours and a C program.
func (b *bench) wrcost(ctx context.Context, m *machine, name string) (ours [2]string, inC string, err error) {
	if ours, err = m.program(ctx, "bench/wrcost"); err != nil {
		return ours, "", err
	}
	inC, b.run.C, err = m.client.compile(ctx, source(name))
	return ours, inC, err
}

// requests compares the cost of requests and completions, with an increasing number of
// QPs.
func (b *bench) requests(ctx context.Context, m *machine, place string, qps []int) {
	for _, n := range qps {
		if b.options.tests != "" {
			return
		}
		b.fail(place, fmt.Sprintf("requests of %d queue pairs", n), b.requestsOf(ctx, m, place, n))
	}
}

func (b *bench) requestsOf(ctx context.Context, m *machine, place string, n int) error {
	ours, inC, err := b.wrcost(ctx, m, "wrcost.c")
	if err != nil {
		return err
	}
	const rounds = "10" // so that every page of the rings has been touched
	programs := map[string][]string{
		results.Go: unlimited(ours[1], "-d", m.device, "-rounds", rounds, "-qps", strconv.Itoa(n)),
		results.C:  unlimited(inC, m.device, strconv.Itoa(n), rounds),
	}
	if n == 1 {
		cgo, err := b.cgo(ctx, m, ".")
		if err != nil {
			return err
		}
		if cgo != "" {
			programs[results.Cgo] = []string{cgo, m.device}
		}
	}
	if err := b.costs(ctx, m, results.Series{Place: place, Test: "requests", At: n}, programs); err != nil {
		return err
	}
	b.logf("%s: %d queue pairs", place, n)
	return nil
}

// otherRequests compares the costs of requests of other types of QPs, and of other requests.
func (b *bench) otherRequests(ctx context.Context, m *machine, place string) error {
	if b.options.tests != "" {
		return nil
	}
	ours, inC, err := b.wrcost(ctx, m, "typecost.c")
	if err != nil {
		return err
	}
	const rounds = "10"
	return b.costs(ctx, m, results.Series{Place: place, Test: results.OtherRequests, At: 1}, map[string][]string{
		results.Go: {ours[1], "-d", m.device, "-types", "-rounds", rounds}, results.C: {inC, m.device, rounds}})
}

// costs runs the programs and adds their figures to series like s. A batch of Go is compared with a list of C and cgo.
func (b *bench) costs(ctx context.Context, m *machine, s results.Series, programs map[string][]string) error {
	s.Unit = "ns"
	if s.Place == "instructions" {
		s.Unit = s.Place
	}
	var ours map[string]float64
	for _, who := range []string{results.Go, results.C, results.Cgo} {
		if programs[who] == nil {
			continue
		}
		out, err := m.client.run(ctx, programs[who]...)
		if err != nil {
			return err
		}
		names, values, err := named(out)
		if err != nil {
			return err
		}
		if who == results.Go {
			ours = values
		}
		for _, name := range names {
			s.Figure = name
			b.run.Add(s, who, values[name])
			s.Figure = strings.Replace(name, "list", "builder", 1)
			if _, ok := ours[s.Figure]; ok && who != results.Go && s.Figure != name {
				b.run.Add(s, who, values[name])
			}
		}
	}
	return nil
}

// memory compares the memory that each of many QPs and CQs takes.
func (b *bench) memory(ctx context.Context, m *machine, place string) error {
	if b.options.tests != "" {
		return nil
	}
	ours, inC, err := b.wrcost(ctx, m, "wrcost.c")
	if err != nil {
		return err
	}
	n := strconv.Itoa(manyObjects)
	for who, program := range map[string][]string{
		results.Go: unlimited(ours[1], "-d", m.device, "-memory", n), results.C: unlimited(inC, m.device, "memory", n)} {
		out, err := m.client.run(ctx, program...)
		if err != nil {
			return err
		}
		_, values, err := named(out)
		if err != nil {
			return err
		}
		for _, name := range []string{"CQ.rss", "CQ.mapped", "QP.rss", "QP.mapped"} {
			v, ok := values[name]
			if !ok {
				return fmt.Errorf("%s has no %s in\n%s", who, name, out)
			}
			b.run.Add(results.Series{Place: place, Test: results.Memory, Figure: name, At: manyObjects, Unit: "bytes"}, who, v)
		}
	}
	b.logf("%s: memory of %s objects", place, n)
	return nil
}

// cgo builds a program of bench/cgo and installs it. It returns "" if there is no C compiler.
func (b *bench) cgo(ctx context.Context, m *machine, pkg string) (string, error) {
	if _, ok := m.client.(guest); !ok {
		return "", nil // it would need the hosts' libraries on this machine
	}
	if _, err := exec.LookPath("gcc"); err != nil {
		b.logf("there is no gcc, and so no comparison with cgo")
		return "", nil
	}
	f, err := rootFlags(ctx, b.dir)
	if err != nil {
		return "", err
	}
	program := filepath.Join(b.dir, "cgo")
	env := []string{
		"CGO_ENABLED=1",
		"CGO_CFLAGS=-O2 " + strings.Join(f.compile, " "),
		"CGO_LDFLAGS=" + strings.Join(f.link, " "),
	}
	if _, err := local(ctx, env, "go", "build", "-C", "../bench/cgo", "-buildvcs=false", "-o", program, pkg); err != nil {
		return "", err
	}
	return m.client.install(ctx, program)
}

// A line of Go's benchmark output, and a value in it.
var (
	benchmark = regexp.MustCompile(`(?m)^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	measured  = regexp.MustCompile(`([0-9.e+]+) (\S+)`)
)

// native runs Go's benchmarks of queues in memory on this machine: many short runs, of
// which at least one is not disturbed. Tails need longer runs and use the median,
// because the fastest run does not represent a tail.
func (b *bench) native(ctx context.Context) error {
	here := b.here
	here.Name, here.Description, here.Library = results.Native, "this machine, without a device", ""
	b.run.Places = append(b.run.Places, here)
	short := []string{"-benchtime=10ms", "-count=40"}
	long := []string{"-benchtime=200ms", "-count=5"}
	tail := func(more ...string) []string { // while the garbage collector runs
		return slices.Concat(long, []string{"-skip=//allocating"}, more)
	}
	for _, c := range []struct {
		pkg, which string
		how, env   []string
		as         string // suffix of the names
	}{
		{pkg: "provider/mlx5", which: "Post|Poll|Step|Signal|Thread|Queues|Pages", how: short},
		{pkg: "provider/mlx5", which: "Tail", how: long},
		{pkg: "provider/mlx5", which: "Tail/GOGC=100$", how: tail("-cpu=1"), as: " -cpu 1"},
		{pkg: "provider/mlx5", which: "Tail/GOGC=100$", how: tail("-cpu=4"), as: " -cpu 4"},
		{pkg: "provider/mlx5", which: "Tail/GOGC=100$", how: tail(), env: []string{"GODEBUG=asyncpreemptoff=1"},
			as: " asyncpreemptoff=1"},
		{pkg: "provider/rxe", which: "Rings", how: short},
		{pkg: "mmio", which: "Store64|Copy64|FromDevice|Ring", how: short},
	} {
		args := append([]string{"go", "test", "-C", "..", "-run=^$", "-benchmem", "./" + c.pkg, "-bench=" + c.which},
			c.how...)
		out, err := local(ctx, append(c.env, "CGO_ENABLED=0"), args...)
		if err == nil {
			err = b.benchmarks(strings.TrimPrefix(c.pkg, "provider/"), c.as, out)
		}
		b.fail(results.Native, c.pkg+c.as, err)
	}
	return nil
}

// benchmarks keeps the smallest of each value, the median of percentiles and maxima, and
// the largest number of allocations. as is a suffix that distinguishes benchmarks of the
// same name.
func (b *bench) benchmarks(pkg, as, out string) error {
	at := map[string]int{}
	all := map[int]map[string][]float64{}
	for _, line := range benchmark.FindAllStringSubmatch(out, -1) {
		i, ok := at[line[1]]
		if !ok {
			i = len(b.run.Benchmarks)
			at[line[1]], all[i] = i, map[string][]float64{}
			b.run.Benchmarks = append(b.run.Benchmarks, results.Benchmark{Name: pkg + " " + line[1] + as,
				Values: map[string]float64{}})
		}
		for _, f := range measured.FindAllStringSubmatch(line[2], -1) {
			v, err := strconv.ParseFloat(f[1], 64)
			if err != nil {
				return fmt.Errorf("%s: %w", line[0], err)
			}
			all[i][f[2]] = append(all[i][f[2]], v)
		}
	}
	for i, values := range all {
		for unit, v := range values {
			q := 0.0
			switch {
			case strings.HasPrefix(unit, "p"), strings.HasPrefix(unit, "max"):
				q = 0.5
			case unit == "allocs/op", unit == "B/op":
				q = 1
			}
			b.run.Benchmarks[i].Values[unit] = results.Quantile(v, q)
		}
	}
	if len(at) == 0 {
		return fmt.Errorf("no benchmark in\n%s", out)
	}
	return nil
}
