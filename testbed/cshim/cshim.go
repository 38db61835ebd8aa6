// Package cshim runs C programs of the test bed on the host, on machines in memory: unmodified programs with
// libibverbs, its providers and librdmacm, which open a device of a verbstest machine of the test. A library that is
// preloaded sends their system calls to the test: see internal/sim/foreign.
package cshim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/vm/bed"
	"github.com/goverbs/goverbs/verbstest"
)

// A root is the tree of the bed that the programs and the compiler are in. Nothing of it is installed: programs run
// with its dynamic loader and its libraries.
type root struct {
	tree    string
	libs    string
	preload string // path of the compiled library
	err     error
}

const triple = "x86_64-linux-gnu"

// theRoot returns the root. The first call compiles the library.
var theRoot = sync.OnceValue(func() (r root) {
	if runtime.GOARCH != "amd64" {
		r.err = errors.New("cshim: the library is for amd64")
		return r
	}
	b, err := bed.Ensure(context.Background(), os.Stderr, bed.Root)
	if err != nil {
		r.err = err
		return r
	}
	if r.tree, r.err = b.Tree(bed.Root); r.err != nil {
		return r
	}
	r.libs = filepath.Join(r.tree, "usr/lib", triple)
	r.preload, r.err = r.compile()
	return r
})

// loaded returns the arguments that run a program of the tree.
func (r *root) loaded(program string, args ...string) []string {
	all := []string{filepath.Join(r.libs, "ld-linux-x86-64.so.2"), "--library-path", r.libs}
	if r.preload != "" {
		all = append(all, "--preload", r.preload)
	}
	return append(append(all, filepath.Join(r.tree, "usr/bin", program)), args...)
}

// compile compiles the library with the tree's tcc. It returns the path of a file that has no name any more.
func (r *root) compile() (string, error) {
	_, here, _, _ := runtime.Caller(0)
	dir, err := os.MkdirTemp("", "goverbs")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	to := filepath.Join(dir, "shim.so")
	include := filepath.Join(r.tree, "usr/include")
	tcc := r.loaded("tcc", "-B"+filepath.Join(r.libs, "tcc"), "-nostdlib", "-nostdinc",
		"-isystem", filepath.Join(r.libs, "tcc/include"), "-isystem", filepath.Join(include, triple), "-isystem", include,
		"-shared", "-Wall", "-Werror", "-o", to, filepath.Join(filepath.Dir(here), "preload/shim.c"),
		filepath.Join(r.libs, "libc.so.6"), filepath.Join(r.libs, "tcc/libtcc1.a"))
	if out, err := exec.Command(tcc[0], tcc[1:]...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cshim: compiling the library: %w\n%s", err, out)
	}
	fd, err := unix.Open(to, unix.O_RDONLY|unix.O_CLOEXEC, 0) // for the rest of the process's life
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), err
}

// Prepare compiles the library if that has not been done. The library remains open, so tests that check for leaks call
// it before.
func Prepare() { theRoot() }

// A Host runs C programs on a machine.
type Host struct {
	t      testing.TB
	root   root
	server *foreign.Server
	device string
	driver string // of the device
}

// New returns a host for programs on m, until the test ends.
func New(t testing.TB, m *verbstest.Machine) *Host {
	t.Helper()
	return newHost(t, m.Run, m.Device(), "mlx5")
}

func newHost(t testing.TB, run func(func()), device, driver string) *Host {
	t.Helper()
	r := theRoot()
	if r.err != nil {
		t.Fatal(r.err)
	}
	return &Host{t: t, root: r, server: foreign.Start(t, run, device), device: device, driver: driver}
}

// Timeout is how long a program may run.
const Timeout = 2 * time.Minute

// Command returns a command that runs a program of the test bed, such as ibv_devinfo, by its name in /usr/bin. The
// program is killed after [Timeout] and when the test ends.
func (h *Host) Command(name string, args ...string) *exec.Cmd {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), Timeout)
	h.t.Cleanup(cancel)
	return h.command(ctx, name, args...)
}

// command is Command without the timeout.
func (h *Host) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	all := h.root.loaded(name, args...)
	c := exec.CommandContext(ctx, all[0], all[1:]...)
	c.Env = slices.Concat([]string{"PYTHONHOME=" + h.Path("usr"),
		"PYTHONPATH=" + h.Path("usr/lib/python3/dist-packages"), "PYTHONDONTWRITEBYTECODE=1",
		"HOME=/", "LC_ALL=C",
		"IBV_DRIVERS=" + filepath.Join(h.root.libs, "libibverbs/lib"+h.driver)}, h.server.Env())
	return c
}

// Path returns where a path of the test bed's root is on this machine.
func (h *Host) Path(name string) string { return filepath.Join(h.root.tree, name) }

// Await waits until ready returns true.
func (h *Host) Await(ready func(foreign.Stats) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), Timeout)
	defer cancel()
	if err := h.server.Await(ctx, ready); err != nil {
		h.t.Fatal(err)
	}
}
