package arch

import (
	"flag"
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/evidence/memory-differences.md")

const differencesDoc = "docs/evidence/memory-differences.md"

// deviceFiles are the files with tests of devices that do not run in memory, as their build tag says, with the reason.
var deviceFiles = map[string]string{
	"bench/perftest/kernel_test.go":         "needs the address of a device; counts allocations, also the device's",
	"cm/devicetest/cred_test.go":            "the process changes its credentials",
	"cm/devicetest/kill_test.go":            "processes are killed",
	"cm/devicetest/soak_test.go":            "long runs: make soak",
	"cm/example_device_test.go":             "the examples have the address of the guests' device",
	"cmd/internal/rping/kernel_test.go":     "uses the address of the guests' device",
	"cmd/ucmatose/kernel_test.go":           "uses the address of the guests' device",
	"internal/nldev/device_test.go":         "netlink and sysfs of the kernel",
	"internal/rdmacm/device_test.go":        "the node of rdma_cm; rdmacmtest has its own tests",
	"provider/bnxt_re/device_test.go":       "in memory, TestConformance runs the suite",
	"provider/irdma/device_test.go":         "in memory, TestConformance runs the suite",
	"provider/mlx5/device_test.go":          "in memory, TestConformance of verbstest and of provider/mlx5 runs the suite",
	"provider/mlx5/faults_device_test.go":   "machines in memory have no on-demand paging",
	"provider/mlx5/memoryop_device_test.go": "machines in memory execute no operations on device memory",
	"provider/rxe/device_test.go":           "rxe does not exist in memory",
	"provider/siw/device_test.go":           "siw does not exist in memory",
	"rdma/alloc_test.go":                    "counts allocations, also the device's",
	"rdma/busy_device_test.go":              "the server is another process",
	"rdma/dmabuf_unsafe_test.go":            "dma-bufs of the kernel",
	"rdma/foreign_device_test.go":           "machines in memory have no on-demand paging and no dma-bufs",
	"rdma/device_test.go":                   "runs the tests that run in memory anyway on a device",
	"rdma/memlock_device_test.go":           "the process changes its user; TestMemoryLimit runs in memory",
	"rdma/rails_device_test.go":             "a device is created and removed; TestRails… run in memory",
	"rsocket/alloc_test.go":                 "counts allocations, also the device's",
	"rsocket/device_test.go":                "runs the tests that run in memory anyway on a device",
	"rsocket/packetalloc_test.go":           "counts allocations, also the device's",
	"uverbs/devicetest/open_test.go":        "rights and nodes of the kernel, other network namespaces",
	"uverbs/devicetest/soak_test.go":        "long runs: make soak",
	"verbstest/mistakes/device_test.go":     "what rxe shows; in memory, TestMistakes runs the programs",

	"provider/mlx5/devx/devx_device_test.go":         "package devx needs a real device",
	"provider/mlx5/devx/parity_device_test.go":       "package devx needs a real device",
	"provider/mlx5/devx/shortmessage_device_test.go": "machines in memory create no keys by DevX",
	"provider/mlx5/devx/sourceport_device_test.go":   "package devx needs a real device",
	"provider/mlx5/devx/words_unsafe_test.go":        "package devx needs a real device",
}

// tables are the differences that the tests themselves use.
var tables = []struct {
	file, variable, prefix, title string
}{
	{"uverbs/devicetest/differences_test.go", "differences", "TestDevice", "uverbs/devicetest: only on a kernel"},
	{"uverbs/devicetest/differences_test.go", "ethernetOnly", "TestDevice", "uverbs/devicetest: not on InfiniBand"},
	{"cm/devicetest/begin_test.go", "kernelOnly", "", "cm/devicetest: only on a kernel"},
	{"cm/devicetest/begin_test.go", "ethernetOnly", "", "cm/devicetest: not on InfiniBand"},
}

// TestMemoryDifferences checks that the page lists all tests of devices that do not run in memory, and that the tests
// exist.
func TestMemoryDifferences(t *testing.T) {
	var b strings.Builder
	b.WriteString(strings.ReplaceAll(differencesIntro, "'", "`"))
	section := func(title, first string, rows map[string]string) {
		fmt.Fprintf(&b, "\n## %s\n\n| %s | why |\n|---|---|\n", title, first)
		for _, name := range slices.Sorted(maps.Keys(rows)) {
			fmt.Fprintf(&b, "| `%s` | %s |\n", name, rows[name])
		}
	}
	for _, table := range tables {
		f := fileAt(t, table.file)
		rows := map[string]string{}
		for name, why := range stringMap(t, f, table.variable) {
			rows[table.prefix+name] = why
			test, _, _ := strings.Cut(table.prefix+name, "/")
			if !hasFunc(t, f.dir(), test) {
				t.Errorf("%s: %s lists %s, which does not exist", table.file, table.variable, test)
			}
		}
		section(table.title, "test", rows)
	}
	checkDeviceFiles(t)
	section("Files with the build tag `device`", "file", deviceFiles)
	path := filepath.Join(root, differencesDoc)
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != b.String() {
		t.Errorf("%s differs from the tables (%v): go test ./internal/arch -run TestMemoryDifferences -update",
			differencesDoc, err)
	}
}

// differencesIntro has ' in place of `.
const differencesIntro = `# What does not run in memory

The device tests of uverbs and cm run on machines in memory ([testing.md](../testing.md)) in 'make check', on RoCE and
on InfiniBand, and so do the tests of rdma-core in Go (TestDeviceParity…) and the suite for providers. This page lists
those that do not, and why. The tests of 'testbed' run them in guests, on Linux with rxe0 or the software ConnectX;
'make soak' runs the long ones. Tests of features that a device or kernel lacks are skipped there as in memory:
'internal/sim/features' lists the features. On InfiniBand, most tests of cm run in memory only: guests have no subnet
manager, and so no IPoIB.

Written by 'go test ./internal/arch -run TestMemoryDifferences -update' from the tables that the tests use.
`

// fileAt returns a file of the tree.
func fileAt(t *testing.T, path string) *file {
	t.Helper()
	for _, f := range files(t) {
		if f.path == path {
			return f
		}
	}
	t.Fatalf("there is no %s", path)
	return nil
}

// checkDeviceFiles compares deviceFiles with the build tags of the files.
func checkDeviceFiles(t *testing.T) {
	t.Helper()
	found := map[string]bool{}
	for _, f := range files(t) {
		if f.module == "" && f.test() && slices.ContainsFunc(f.ast.Comments, func(c *ast.CommentGroup) bool {
			return c.Pos() < f.ast.Package && strings.Contains(c.List[0].Text, "//go:build") &&
				strings.Contains(c.List[0].Text, "device")
		}) {
			found[f.path] = true
			if deviceFiles[f.path] == "" {
				t.Errorf("%s has the build tag device, so that it does not run in memory: list it in deviceFiles with the reason",
					f.path)
			}
		}
	}
	for path := range deviceFiles {
		if !found[path] {
			t.Errorf("deviceFiles lists %s, which does not exist or has no build tag device", path)
		}
	}
}

// hasFunc reports whether a test file in a directory declares a function.
func hasFunc(t *testing.T, dir, name string) bool {
	t.Helper()
	for _, f := range files(t) {
		if f.dir() == dir && f.test() && f.ast.Scope.Lookup(name) != nil {
			return true
		}
	}
	return false
}

// stringMap returns the value of a variable of a file, a map literal of strings and constants of the file.
func stringMap(t *testing.T, f *file, variable string) map[string]string {
	t.Helper()
	literal, ok := valueOf(f, variable).(*ast.CompositeLit)
	if !ok || len(literal.Elts) == 0 {
		t.Fatalf("%s: %s is not a map with elements", f.path, variable)
	}
	rows := map[string]string{}
	for _, e := range literal.Elts {
		pair := e.(*ast.KeyValueExpr)
		rows[text(f, pair.Key)] = text(f, pair.Value)
	}
	return rows
}

// valueOf returns the initial value of a variable or constant of a file.
func valueOf(f *file, name string) ast.Expr {
	if o := f.ast.Scope.Lookup(name); o != nil {
		if spec, ok := o.Decl.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
			return spec.Values[0]
		}
	}
	return nil
}

// text returns the value of a string literal or of a constant of the file, or "?".
func text(f *file, e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.StringVal(constant.MakeFromLiteral(e.Value, token.STRING, 0))
	case *ast.Ident:
		if v := valueOf(f, e.Name); v != nil {
			return text(f, v)
		}
	}
	return "?"
}
