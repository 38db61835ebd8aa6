package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// describe records this machine, its versions and the commit.
func (b *bench) describe(ctx context.Context) error {
	b.here.Date, b.here.Go, b.here.CPUs = time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU()
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	b.here.Machine = cmp.Or(processor(string(info)), runtime.GOARCH)
	b.here.Commit, err = commit(ctx, ".")
	return err
}

const dirty = "-dirty"

// commit returns the commit of a tree. Files that this program and bench/report write do
// not count as changes.
func commit(ctx context.Context, dir string) (string, error) {
	name, err := local(ctx, nil, "git", "-C", dir, "rev-parse", "--short=9", "HEAD")
	if err != nil {
		return "", err
	}
	name = strings.TrimSpace(name)
	changes, err := local(ctx, nil, "git", "-C", dir, "status", "--porcelain", "--untracked-files=no", "--", ":/",
		":/!bench/figures", ":/!docs/go-and-c.md", ":/!docs/evidence/go-and-c.md", ":/!docs/charts")
	if changes != "" {
		name += dirty
	}
	return name, err
}

// processor returns the processor's name, which arm64 does not report.
func processor(cpuinfo string) string {
	for line := range strings.Lines(cpuinfo) {
		if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// boot boots a guest, and sets up the test bed for it.
func (b *bench) boot(ctx context.Context, c vm.Config) (*vm.Guest, error) {
	c.Kernel, c.Root, c.Logf = b.options.kernel, true, b.logf
	parts, err := c.Parts()
	if err != nil {
		return nil, err
	}
	set, err := bed.Ensure(ctx, os.Stderr, parts...)
	if err != nil {
		return nil, err
	}
	return vm.Boot(ctx, set, c)
}

// inGuest calls f with a guest, and ends the guest afterwards.
func (b *bench) inGuest(ctx context.Context, c vm.Config, f func(*machine) error) (err error) {
	g, err := b.boot(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	h := guest{g, b.dir}
	out, err := h.run(ctx, "sh", "-c", versions)
	if err != nil {
		return err
	}
	b.here.Library = library(out)
	if c.Fabric {
		if out, err = h.run(ctx, "/run/fabric/usr/bin/fi_info", "--version"); err != nil {
			return err
		}
		b.here.Library += fabricVersion(out)
	}
	m := &machine{server: h, client: h, port: firstPort, programs: map[string][2]string{}, dir: b.dir}
	return f(m)
}

// versions prints the versions of C's perftest and of rdma-core.
const versions = "ib_send_lat --version; readlink -f /usr/lib*/libibverbs.so.1 /usr/lib/*/libibverbs.so.1" +
	" 2>/dev/null; true"

// library formats the output of versions. The name of the library ends in rdma-core's
// version.
func library(out string) string {
	perftest, file, _ := strings.Cut(out, "\n")
	_, version, _ := strings.Cut(file, "libibverbs.so.1.")
	_, version, _ = strings.Cut(strings.TrimSpace(version), ".")
	_, perftest, _ = strings.Cut(perftest, ":")
	return "rdma-core " + version + ", perftest " + strings.TrimSpace(perftest)
}

// fabricVersion formats the line of the output of fi_info that has libfabric's version.
func fabricVersion(out string) string {
	_, version, _ := strings.Cut(out, "libfabric: ")
	version, _, _ = strings.Cut(version, "\n")
	return ", libfabric " + version
}

// tried lists the options about which docs/performance.md gives advice, except -I, which
// C's perftest ignores on devices that it does not know.
var tried = []string{"send_lat -e", "write_bw -Q 1", "write_bw -l 32", "write_bw -t 1"}

func rxeGames(messages int) []game {
	tests := []string{"send_lat", "write_lat", "read_lat", "send_bw", "write_bw", "read_bw"}
	all := append(games(tests, []int{2, 64, 1024, 4096, 16384, 65536}, messages), many([]int{1, 4, 16, 64}, messages)...)
	return append(all, variants(messages, tried...)...)
}

// onRXE compares the programs on soft-RoCE.
func (b *bench) onRXE(ctx context.Context) error {
	const place = "rxe"
	return b.inGuest(ctx, vm.Config{RXE: true, MemoryMB: 4096}, func(m *machine) error {
		b.place(place, m,
			"soft-RoCE, both ends in one guest of 2 CPUs, which they share with the kernel's part of the device")
		m.device, m.address = "rxe0", "10.9.0.1"
		if _, err := m.client.run(ctx, "ip", "link", "set", "d0", "mtu", "4200"); err != nil {
			return err
		}
		b.play(ctx, m, place, rxeGames(b.messages))
		b.fail(place, "objects", b.objects(ctx, m, place, 1, 100, 1000, 10000))
		b.fail(place, "cmtime", b.cmtime(ctx, m, place))
		b.fail(place, "many connections", b.connections(ctx, m, place))
		return nil
	})
}

// place records where programs run.
func (b *bench) place(name string, m *machine, what string) {
	if g, ok := m.client.(guest); ok {
		what += "; Linux " + g.Release()
	}
	p := b.here
	p.Name, p.Description = name, what
	b.run.Places = append(b.run.Places, p)
}

// connectX calls f with a software ConnectX, and closes it afterwards. It returns the
// violations that the device reported.
func connectX(link connectx.LinkLayer, f func(sockets []string) error) (err error) {
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var complaints []error
	w, err := world.Start(world.Config{Dir: dir, Devices: 1, LinkLayer: link,
		Report: func(err error) { complaints = append(complaints, err) },
		Violation: func(device string, v engine.Violation) {
			complaints = append(complaints, fmt.Errorf("%s: %s", device, world.Describe(v)))
		}})
	if err != nil {
		return err
	}
	err = f(w.Sockets())
	err = errors.Join(err, w.Close())
	return errors.Join(append(complaints, err)...)
}

// active waits until the port of a software ConnectX is up.
const active = "until grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state; do sleep 0.1; done"

func connectXGames(messages int) []game {
	return games([]string{"send_lat", "write_lat", "send_bw", "write_bw"}, []int{2, 64, 4096, 65536}, messages)
}

// onConnectX compares the programs on a software ConnectX under the kernel's own driver.
func (b *bench) onConnectX(ctx context.Context) error {
	const place = "mlx5"
	return connectX(connectx.InfiniBand, func(sockets []string) error {
		return b.inGuest(ctx, vm.Config{VFIOUser: sockets, Modules: []string{"mlx5_ib"}}, func(m *machine) error {
			b.place(place, m, "a software ConnectX, both ends in one guest of 2 CPUs; the device is a separate process")
			m.device, m.address = "mlx5_0", "127.0.0.1"
			if _, err := m.client.run(ctx, "timeout", "60", "sh", "-c", active); err != nil {
				return err
			}
			b.play(ctx, m, place, connectXGames(b.messages))
			b.fail(place, "parallel posts", b.parallel(ctx, m, place, parallelPosts...))
			return nil
		})
	})
}

// source returns the path of a C program.
func source(name string) string { return filepath.Join("speed", "testdata", name) }
