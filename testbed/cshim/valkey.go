package cshim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// A valkey is Valkey's server with RDMA.
type valkey struct {
	tree   string
	module string // path of the compiled module
	err    error
}

// theValkey returns the server. The first call compiles the module, to a file that has no name any more.
var theValkey = sync.OnceValue(func() (v valkey) {
	r := theRoot()
	if r.err != nil {
		return valkey{err: r.err}
	}
	dir, err := os.MkdirTemp("", "goverbs")
	if err != nil {
		return valkey{err: err}
	}
	defer os.RemoveAll(dir)
	if v.tree, v.module, v.err = CompileValkey(dir); v.err != nil {
		return v
	}
	fd, err := unix.Open(v.module, unix.O_RDONLY|unix.O_CLOEXEC, 0) // for the rest of the process's life
	v.module, v.err = fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), err
	return v
})

// CompileValkey compiles the RDMA module of Valkey's server, which Debian's package lacks, into a directory. It returns
// the tree with the server, usr/bin/valkey-server, and its libraries, and the path of the module. The server must be
// started with the module preloaded: a library of tcc asks for an executable stack, which is not possible later.
func CompileValkey(dir string) (tree, module string, err error) {
	r := theRoot()
	if r.err != nil {
		return "", "", r.err
	}
	b, err := bed.Ensure(context.Background(), os.Stderr, bed.Valkey)
	if err != nil {
		return "", "", err
	}
	if tree, err = b.Tree(bed.Valkey); err != nil {
		return "", "", err
	}
	sources, err := filepath.Glob(filepath.Join(tree, "usr/src/valkey-*/src/rdma.c"))
	if err != nil || len(sources) != 1 {
		return "", "", fmt.Errorf("cshim: the source of Valkey's RDMA module: %q, %v", sources, err)
	}
	module = filepath.Join(dir, "valkey-rdma.so")
	return tree, module, r.compileValkey("-DUSE_RDMA=2", "-DBUILD_RDMA_MODULE=2", "-shared", "-rdynamic", "-o", module,
		sources[0])
}

// compileValkey compiles a file of Valkey's with tcc.
func (r *root) compileValkey(args ...string) error {
	_, here, _, _ := runtime.Caller(0)
	include := filepath.Join(r.tree, "usr/include")
	tcc := r.loaded("tcc", slices.Concat([]string{"-B" + filepath.Join(r.libs, "tcc"), "-nostdlib", "-nostdinc",
		"-I", filepath.Join(filepath.Dir(here), "valkey"), "-isystem", filepath.Join(r.libs, "tcc/include"),
		"-isystem", filepath.Join(include, triple), "-isystem", include, "-L", r.libs}, args, []string{
		filepath.Join(r.libs, "libibverbs.so.1"), filepath.Join(r.libs, "librdmacm.so.1"),
		filepath.Join(r.libs, "libc.so.6"), filepath.Join(r.libs, "tcc/libtcc1.a")})...)
	if out, err := exec.Command(tcc[0], tcc[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("cshim: compiling a file of Valkey's: %w\n%s", err, out)
	}
	return nil
}

// ValkeyClient returns a command that runs the client of Valkey's own tests of RDMA. See [Host.Command].
func (h *Host) ValkeyClient(args ...string) *exec.Cmd {
	h.t.Helper()
	v := theValkey()
	if v.err != nil {
		h.t.Fatal(v.err)
	}
	sources, err := filepath.Glob(filepath.Join(v.tree, "usr/src/valkey-*/tests/rdma/rdma-test.c"))
	if err != nil || len(sources) != 1 {
		h.t.Fatalf("cshim: the source of Valkey's test client: %q, %v", sources, err)
	}
	program := filepath.Join(h.t.TempDir(), "rdma-test")
	crt := func(name string) string { return filepath.Join(h.root.libs, name) }
	// It has one thread: tcc has no atomics.
	err = h.root.compileValkey("-D_GNU_SOURCE", "-D__atomic_fetch_add(p,n,order)=((*(p)+=(n))-(n))", "-o", program,
		crt("crt1.o"), crt("crti.o"), sources[0], crt("crtn.o"))
	if err != nil {
		h.t.Fatal(err)
	}
	c := h.Command("rdma-test")
	c.Args = append([]string{c.Args[0], "--library-path", h.root.libs, "--preload", h.root.preload, program}, args...)
	return c
}

// ValkeyArgs are arguments of Valkey's server with a module, without TCP and files.
func ValkeyArgs(module string) []string {
	return []string{"--port", "0", "--save", "", "--protected-mode", "no", "--loadmodule", module}
}

// ValkeyServer returns a command that runs Valkey's server at port 6379 of the address until the test ends.
func (h *Host) ValkeyServer(addr string) *exec.Cmd {
	h.t.Helper()
	v := theValkey()
	if v.err != nil {
		h.t.Fatal(v.err)
	}
	c := h.command(h.t.Context(), "valkey-server")
	c.Args = slices.Concat([]string{c.Args[0],
		"--library-path", filepath.Join(v.tree, "usr/lib", triple) + ":" + h.root.libs,
		"--preload", h.root.preload + ":" + v.module, filepath.Join(v.tree, "usr/bin/valkey-server")},
		ValkeyArgs(v.module), []string{"--rdma-bind", addr, "--rdma-port", "6379"})
	return c
}
