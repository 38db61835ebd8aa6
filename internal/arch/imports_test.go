package arch

import (
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// layers lists which packages of this module and of the test bed a package may
// import outside its tests. As in the go command, a pattern that ends in /... matches the package
// and all packages below it. The first matching line applies.
var layers = []struct {
	pkg     string
	imports []string
}{
	{"internal/arch", nil},
	{"internal/uapi", nil},
	{"internal/leak", nil},
	{"internal/verbs", nil},
	{"internal/sim/polltest", []string{"internal/verbs"}},
	{"internal/sim/leaktest", []string{"internal/leak", "internal/sim/polltest"}},
	{"internal/noescape", nil},
	{"internal/sim/certtest", nil},
	{"internal/sim/errtest", nil},
	{"internal/sim/failtest", nil},
	{"internal/sim/usertest", nil},
	{"internal/getopt", nil},
	{"internal/version", nil},
	{"internal/monitor", nil},
	{"internal/sim/monitortest", nil},
	{"internal/nldev", []string{"internal/uapi"}},
	{"internal/ioctl", []string{"internal/uapi", "internal/leak"}},
	{"internal/sim/ioctltest", []string{"internal/ioctl", "internal/uapi"}},
	{"internal/sim/call", []string{"internal/ioctl", "internal/uapi"}},
	{"internal/machine", []string{"internal/ioctl", "internal/nldev"}},
	{"internal/rdmacm", []string{"internal/uapi", "internal/leak", "internal/machine", "internal/monitor",
		"internal/nldev"}},
	{"internal/sim/rdmacmtest", []string{"internal/rdmacm", "internal/uapi"}},
	{"internal/race", nil},
	{"internal/quota", nil},
	{"internal/ctxerr", nil},
	{"internal/lead", []string{"internal/ctxerr", "internal/verbs"}},
	{"internal/memlock", []string{"internal/machine"}},
	{"mmio", []string{"internal/race"}},
	{"internal/driver", []string{"internal/ioctl", "internal/uapi"}},
	{"uverbs", []string{"internal/ctxerr", "internal/driver", "internal/ioctl", "internal/machine", "internal/memlock",
		"internal/monitor", "internal/nldev", "internal/uapi", "internal/leak", "internal/noescape", "internal/race",
		"internal/verbs"}},
	{"uverbs/ether", []string{"uverbs", "internal/driver", "internal/ioctl", "internal/noescape", "internal/race",
		"internal/uapi"}},
	{"uverbs/devicetest", nil},
	{"cm/devicetest", nil},
	{"verbstest/mistakes", nil},
	{"cm", []string{"uverbs", "internal/ctxerr", "internal/driver", "internal/machine", "internal/rdmacm", "internal/uapi",
		"internal/nldev", "internal/leak", "internal/quota", "internal/verbs"}},
	{"rdma", []string{"cm", "uverbs", "internal/ctxerr", "internal/lead", "internal/machine", "internal/memlock",
		"internal/quota", "internal/verbs"}},
	{"rsocket", []string{"cm", "uverbs", "internal/lead", "internal/memlock", "internal/quota"}},
	{"internal/provider", []string{"uverbs", "internal/driver", "internal/ioctl", "internal/leak", "internal/uapi"}},
	{"provider/all", []string{"provider/..."}},
	{"internal/firmware", []string{"uverbs", "internal/ioctl", "internal/uapi"}},
	{"provider/mlx5/devx", []string{"uverbs", "mmio", "provider/mlx5", "internal/ctxerr", "internal/driver",
		"internal/provider", "internal/firmware", "internal/ioctl", "internal/uapi"}},
	{"provider/mlx5/gen", nil},
	{"provider/mlx5", []string{"uverbs", "mmio", "internal/driver", "internal/provider", "internal/firmware",
		"internal/ioctl", "internal/uapi", "internal/leak"}},
	{"internal/sim/providertest", []string{"uverbs", "internal/driver", "internal/provider", "internal/sim/errtest"}},
	{"provider/...", []string{"uverbs", "mmio", "internal/driver", "internal/provider", "internal/ioctl",
		"internal/uapi", "internal/leak"}},
	{"internal/sim/conntest", []string{"rdma", "rsocket", "uverbs"}},
	{"internal/sim/features", nil},
	{"internal/sim/rtnetlink", nil},
	{"internal/sim/connectx/loop", nil},
	{"internal/sim/connectx/prm", nil},
	{"internal/sim/connectx/roce", nil},
	{"internal/sim/connectx/trace", nil},
	{"internal/sim/connectx/transport", []string{"internal/sim/connectx/loop", "internal/sim/connectx/roce"}},
	{"internal/sim/connectx/fabric", []string{"internal/sim/connectx/loop", "internal/sim/connectx/roce"}},
	{"internal/sim/connectx/engine", []string{"internal/sim/connectx/...", "internal/race"}},
	{"verbstest", []string{"uverbs", "internal/machine", "internal/sim/fakemlx5", "internal/sim/connectx/...",
		"internal/sim/ioctltest", "internal/sim/rdmacmtest", "internal/ioctl", "internal/rdmacm", "internal/nldev",
		"internal/race", "internal/uapi", "provider/mlx5"}},
	{"internal/sim/fakemlx5", []string{"uverbs", "uverbs/ether", "internal/sim/connectx/...",
		"internal/sim/call", "internal/sim/ioctltest", "internal/ioctl", "internal/race", "internal/uapi"}},
	{"internal/sim/devfile", []string{"internal/race", "internal/sim/ioctltest"}},
	{"internal/sim/fakedev", []string{"uverbs", "internal/ioctl", "internal/machine", "internal/nldev", "internal/race",
		"internal/rdmacm", "internal/sim/call", "internal/sim/connectx/loop", "internal/sim/connectx/roce",
		"internal/sim/connectx/transport", "internal/sim/devfile", "internal/sim/ioctltest", "internal/sim/rdmacmtest",
		"internal/uapi"}},
	{"internal/sim/fakeefa", []string{"internal/ioctl", "internal/sim/call", "internal/sim/connectx/transport",
		"internal/sim/devfile", "internal/sim/fakedev", "internal/sim/ioctltest", "internal/uapi"}},
	{"internal/sim/fakebnxt", []string{"uverbs", "internal/ioctl", "internal/sim/call", "internal/sim/connectx/transport",
		"internal/sim/devfile", "internal/sim/fakedev", "internal/sim/ioctltest", "internal/uapi"}},
	{"internal/sim/fakeirdma", []string{"uverbs", "internal/ioctl", "internal/sim/call", "internal/sim/connectx/transport",
		"internal/sim/devfile", "internal/sim/fakedev", "internal/sim/ioctltest", "internal/uapi"}},
	{"internal/sim/foreign", []string{"internal/ctxerr", "internal/ioctl", "internal/machine", "internal/nldev",
		"internal/rdmacm", "internal/sim/ioctltest", "internal/sim/rdmacmtest",
		"internal/uapi"}},
	{"testbed/...", []string{"..."}},
	{"bench/...", []string{"rdma", "rsocket", "uverbs", "cm", "provider/...", "bench/...", "internal/getopt",
		"internal/version"}},
	{"cmd/goverbs", []string{"bench/perftest", "cmd/internal/...", "internal/getopt", "internal/version", "provider/all"}},
	{"cmd/internal/doctor/...", []string{"rdma", "cm", "uverbs", "provider/all", "cmd/internal/doctor/...",
		"internal/nldev", "internal/version"}},
	{"cmd/internal/program/programtest", []string{"cmd/internal/program", "verbstest"}},
	{"cmd/internal/rproxy", []string{"rsocket", "provider/all", "cmd/internal/program", "internal/getopt",
		"internal/quota"}},
	{"cmd/...", []string{"rsocket", "uverbs", "uverbs/ether", "cm", "provider/all", "cmd/...", "internal/getopt",
		"internal/version"}},
	{"examples/...", []string{"rdma", "rsocket", "uverbs", "cm", "provider/all"}},
}

// forTests lists the packages that only tests and other packages in this list may
// import.
var forTests = []string{"verbstest", "internal/sim/...", "internal/arch", "testbed/...",
	"cmd/internal/program/programtest"}

// matches reports whether pattern matches the package path pkg.
func matches(pattern, pkg string) bool {
	base, below := strings.CutSuffix(pattern, "...")
	if !below {
		return pattern == pkg
	}
	return strings.HasPrefix(pkg+"/", base)
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// TestLayers checks that imports follow layers.
func TestLayers(t *testing.T) {
	packages := map[string]bool{}
	all := files(t)
	for _, f := range all {
		packages[f.dir()] = true
	}
	for _, f := range all {
		if f.test() || f.dir() == "examples" {
			continue
		}
		i := slices.IndexFunc(layers, func(l struct {
			pkg     string
			imports []string
		}) bool {
			return matches(l.pkg, f.dir())
		})
		if i < 0 {
			t.Errorf("%s: add %s to layers in internal/arch/imports_test.go", f.path, f.dir())
			continue
		}
		for _, imp := range f.imports() {
			if packages[imp] && !matchesAny(layers[i].imports, imp) {
				t.Errorf("%s imports %s: %s may import %v", f.path, imp, layers[i].pkg, layers[i].imports)
			}
		}
	}
}

// Only tests and packages for tests import packages for tests.
func TestOnlyTestsImportTestSupport(t *testing.T) {
	for _, f := range files(t) {
		if f.test() || matchesAny(forTests, f.dir()) {
			continue
		}
		for _, imp := range f.imports() {
			if matchesAny(forTests, imp) || imp == "testing" || strings.HasPrefix(imp, "github.com/google/go-cmp") {
				t.Errorf("%s is not a test but imports %s", f.path, imp)
			}
		}
	}
}

// TestInternalShips checks that a program of the library or one of its commands links every
// internal package that is not for tests.
func TestInternalShips(t *testing.T) {
	imports := map[string][]string{}
	for _, f := range files(t) {
		if !f.test() {
			imports[f.dir()] = append(imports[f.dir()], f.imports()...)
		}
	}
	linked := map[string]bool{}
	var link func(pkg string)
	link = func(pkg string) {
		if !linked[pkg] {
			linked[pkg] = true
			for _, imp := range imports[pkg] {
				link(imp)
			}
		}
	}
	for pkg := range imports {
		if !strings.HasPrefix(pkg, "internal/") && !matchesAny(forTests, pkg) {
			link(pkg)
		}
	}
	for pkg := range imports {
		if strings.HasPrefix(pkg, "internal/") && !matchesAny(forTests, pkg) && !linked[pkg] {
			t.Errorf("no program links %s: if it is for tests, its place is internal/sim", pkg)
		}
	}
}

// cgoModule is the nested module that uses cgo, to measure calls from Go to C.
const cgoModule = "bench/cgo"

// A file imports unsafe if and only if its name says so. Only cgoModule imports C.
func TestUnsafeByName(t *testing.T) {
	for _, f := range allFiles(t) {
		named := strings.HasSuffix(f.path, "_unsafe.go") || strings.HasSuffix(f.path, "_unsafe_test.go")
		imports := f.imports()
		uses := slices.Contains(imports, "unsafe")
		switch {
		case slices.Contains(imports, "C") && f.module != cgoModule:
			t.Errorf("%s imports C", f.path)
		case uses && !named && !f.generated:
			t.Errorf("%s imports unsafe: only files named *_unsafe.go or *_unsafe_test.go may", f.path)
		case named && !uses:
			t.Errorf("%s does not import unsafe: rename it", f.path)
		}
	}
}

// dependencies lists, for the root module and the test bed, the modules that they
// require, directly or indirectly.
var dependencies = map[string][]string{
	".": {
		"github.com/google/go-cmp", // for tests
		"golang.org/x/sys",
	},
	testbed: {
		"github.com/cavaliergopher/cpio", // writes the initramfs of guests
		"github.com/google/go-cmp",
		module,
		module + "/valkeyrdma",
		"github.com/ulikunitz/xz",        // decompresses kernel modules
		"github.com/valkey-io/valkey-go", // the client of valkeyrdma's tests
		"golang.org/x/net",               // tests of net.Conn
		"golang.org/x/sys",
	},
}

var (
	requirement = regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+/\S+) v`)
	directive   = regexp.MustCompile(`(?m)^(?:replace|tool|exclude)\b.*$`)
)

func TestDependencies(t *testing.T) {
	directives := map[string][]string{testbed: {"replace " + module + " => ../",
		"replace " + module + "/valkeyrdma => ../valkeyrdma"}}
	for dir, want := range dependencies {
		mod, err := os.ReadFile(filepath.Join(root, dir, "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, m := range requirement.FindAllStringSubmatch(string(mod), -1) {
			got = append(got, m[1])
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("%s/go.mod requires %v, want %v", dir, got, want)
		}
		if got := directive.FindAllString(string(mod), -1); !slices.Equal(got, directives[dir]) {
			t.Errorf("%s/go.mod has the directives %q, want %q", dir, got, directives[dir])
		}
	}
}

// os.File.Fd sets the file to blocking mode, after which a read blocks a thread
// instead of using the runtime's poller.
func TestNoFd(t *testing.T) {
	for _, f := range allFiles(t) {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
				if sel, ok := call.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Fd" {
					t.Errorf("%s calls Fd: use SyscallConn", f.at(n))
				}
			}
			return true
		})
	}
}

// A test that sleeps is slow or unreliable. It must wait for an event instead.
func TestNoSleepInTests(t *testing.T) {
	for _, f := range allFiles(t) {
		if !f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "time" || x.Name == "unix" || x.Name == "syscall") {
					t.Errorf("%s sleeps: wait for the event that the test needs", f.at(n))
				}
			}
			return true
		})
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, pkg string
		want         bool
	}{{"uverbs", "uverbs", true}, {"uverbs", "uverbs/x", false}, {"provider/...", "provider/rxe", true},
		{"provider/...", "provider", true}, {"provider/...", "providers/x", false}, {"...", "cm", true}} {
		if got := matches(c.pattern, c.pkg); got != c.want {
			t.Errorf("matches(%q, %q) = %v, want %v", c.pattern, c.pkg, got, c.want)
		}
	}
}
