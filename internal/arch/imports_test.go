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

// layers says which packages of this module a package may import, tests aside.
// A pattern that ends in /... stands for what is below it. The first line that
// fits a package counts.
var layers = []struct {
	pkg     string
	imports []string
}{
	{"internal/arch", nil},
	{"internal/uapi", nil},
	{"internal/leak", nil},
	{"internal/leak/leaktest", []string{"internal/leak"}},
	{"internal/noescape", nil},
	{"internal/failtest", nil},
	{"internal/getopt", nil},
	{"internal/nldev", []string{"internal/uapi"}},
	{"internal/ioctl", []string{"internal/uapi", "internal/leak"}},
	{"internal/ioctl/ioctltest", []string{"internal/ioctl", "internal/uapi"}},
	{"internal/rdmacm", []string{"internal/uapi", "internal/leak", "internal/nldev"}},
	{"internal/rdmacm/rdmacmtest", []string{"internal/rdmacm", "internal/uapi"}},
	{"mmio", nil},
	{"uverbs", []string{"internal/ioctl", "internal/nldev", "internal/uapi", "internal/leak", "internal/noescape"}},
	{"cm", []string{"uverbs", "internal/rdmacm", "internal/uapi", "internal/nldev", "internal/leak"}},
	{"provider", []string{"internal/ioctl", "internal/leak"}},
	{"provider/all", []string{"provider/..."}},
	{"provider/providertest", []string{"uverbs", "provider"}},
	{"provider/...", []string{"uverbs", "provider", "mmio", "internal/ioctl", "internal/uapi", "internal/leak"}},
	{"testbed/...", []string{"..."}},
	{"bench/...", []string{"uverbs", "cm", "provider/...", "bench/...", "internal/getopt"}},
	{"cmd/...", []string{"uverbs", "cm", "provider/all", "cmd/...", "internal/getopt"}},
	{"examples/...", []string{"uverbs", "cm", "provider/all", "examples/...", "internal/getopt"}},
}

// forTests are the packages that only tests import, and packages like them.
var forTests = []string{"internal/failtest", "internal/leak/leaktest", "internal/ioctl/ioctltest", "internal/rdmacm/rdmacmtest", "provider/providertest", "testbed/..."}

func fits(pattern, pkg string) bool {
	base, below := strings.CutSuffix(pattern, "...")
	if !below {
		return pattern == pkg
	}
	return strings.HasPrefix(pkg+"/", base)
}

func fitsAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return fits(p, pkg) })
}

// Imports run one way.
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
			return fits(l.pkg, f.dir())
		})
		if i < 0 {
			t.Errorf("%s: say in internal/arch/imports_test.go what %s may import", f.path, f.dir())
			continue
		}
		for _, imp := range f.imports() {
			if packages[imp] && !fitsAny(layers[i].imports, imp) {
				t.Errorf("%s imports %s: %s may import %v", f.path, imp, layers[i].pkg, layers[i].imports)
			}
		}
	}
}

// What is made for tests is imported by tests, and by what is made for tests.
func TestOnlyTestsImportTestSupport(t *testing.T) {
	for _, f := range files(t) {
		if f.test() || fitsAny(forTests, f.dir()) {
			continue
		}
		for _, imp := range f.imports() {
			if fitsAny(forTests, imp) || imp == "testing" || strings.HasPrefix(imp, "github.com/google/go-cmp") {
				t.Errorf("%s is no test and imports %s", f.path, imp)
			}
		}
	}
}

// withC is the module that compares with calls of C.
const withC = "bench/cgo"

// unsafe is imported where the name of the file says so, and C in one nested
// module.
func TestUnsafeByName(t *testing.T) {
	for _, f := range allFiles(t) {
		named := strings.HasSuffix(f.path, "_unsafe.go") || strings.HasSuffix(f.path, "_unsafe_test.go")
		imports := f.imports()
		uses := slices.Contains(imports, "unsafe")
		switch {
		case slices.Contains(imports, "C") && f.module != withC:
			t.Errorf("%s imports C", f.path)
		case uses && !named && !f.generated:
			t.Errorf("%s imports unsafe: only files named *_unsafe.go or *_unsafe_test.go may", f.path)
		case named && !uses:
			t.Errorf("%s does not import unsafe: give it another name", f.path)
		}
	}
}

// The module needs golang.org/x/sys, tests go-cmp, and nothing else.
func TestDependencies(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile(`(?m)^(?:require)?\s+(\S+\.\S+/\S+) v`).FindAllStringSubmatch(string(mod), -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	if want := []string{"github.com/google/go-cmp", "golang.org/x/sys"}; !slices.Equal(got, want) {
		t.Errorf("go.mod requires %v, want %v", got, want)
	}
	for _, word := range []string{"replace", "tool", "exclude"} {
		if regexp.MustCompile(`(?m)^` + word + `\b`).Match(mod) {
			t.Errorf("go.mod has a %s directive", word)
		}
	}
}

// Fd takes a file out of the poller: a read of it would hold a thread.
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

// A test that sleeps is either slow or wrong, or both.
func TestNoSleepInTests(t *testing.T) {
	for _, f := range allFiles(t) {
		if !f.test() {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "Sleep" {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "time" || x.Name == "unix" || x.Name == "syscall") {
					t.Errorf("%s sleeps: wait for what the test waits for", f.at(n))
				}
			}
			return true
		})
	}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		pattern, pkg string
		want         bool
	}{{"uverbs", "uverbs", true}, {"uverbs", "uverbs/x", false}, {"provider/...", "provider/rxe", true},
		{"provider/...", "provider", true}, {"provider/...", "providers/x", false}, {"...", "cm", true}} {
		if got := fits(c.pattern, c.pkg); got != c.want {
			t.Errorf("%q fits %q: %v", c.pattern, c.pkg, got)
		}
	}
}
