package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A suite is a module of pyverbs' tests, with the Go test whose subtests have the
// names of the module's tests.
type suite struct {
	module string // of tests/
	pkg    string // from the module's root
	goTest string
	notes  string // differences between the two
}

// suites lists the modules that have Go tests.
var suites = []suite{
	{"test_addr", "uverbs/devicetest", "TestDeviceParityAddr", ""},
	{"test_atomic", "uverbs/devicetest", "TestDeviceParityAtomic", ""},
	{"test_cq", "uverbs/devicetest", "TestDeviceParityCQ",
		"Python's `test_resize_cq` shrinks the queue while completions are still coming, and may lose one;" +
			" Go's waits for them."},
	{"test_cq_events", "uverbs/devicetest", "TestDeviceParityCQEvents", ""},
	{"test_cqex", "uverbs/devicetest", "TestDeviceParityCQEx", "C has two kinds of CQ, Go has one."},
	{"test_device", "uverbs/devicetest", "TestDeviceParityDevice",
		"The library makes the buffer of the GID table itself, so `test_query_gid_table_bad_flow` cannot make it too\n" +
			"small: it checks that no entry is missing. Go allocates device memory without a mask of attributes: a wrong\n" +
			"alignment replaces C's wrong mask in `test_create_dm_bad_flow`. The processes of\n" +
			"`test_multi_process_alloc_dm` have the memory at the same time."},
	{"test_flow", "uverbs/devicetest", "TestDeviceParityFlow", ""},
	{"test_fork", "uverbs/devicetest", "TestDeviceParityFork",
		"Go has nothing to initialize. The Go test checks what fork_init is for: that registered memory stays with its\n" +
			"owner while children are started."},
	{"test_mr", "uverbs/devicetest", "TestDeviceParityMR",
		"rxe changes registrations from 6.12 on, which C's provider does not pass on. C's `test_create_dm_mr` also\n" +
			"registers regions of no bytes, which Go refuses: see `test_dm_bad_registration`."},
	{"test_mlx5_cq", "uverbs/devicetest", "TestDeviceParityMLX5CQ",
		"C chooses the size of the completions of each CQ, Go that of all CQs of a device, with the environment\n" +
			"variable that C has as well. Go has no compressed or padded completions, which these devices do not have\n" +
			"either. `test_scatter_to_cqe_control_by_qp` sets the flags of DCIs in C, for which libmlx5 does not use them,\n" +
			"and of RC queue pairs in Go."},
	{"test_mlx5_dc", "uverbs/devicetest", "TestDeviceParityDC",
		"One test is skipped in C and has none in Go: the software ConnectX maps no address handles to QPs."},
	{"test_mlx5_devx", "provider/mlx5/devx", "TestDeviceParityDevX",
		"The two tests that are skipped in C have none in Go."},
	{"test_mlx5_dm_ops", "provider/mlx5", "TestDeviceDMOps", ""},
	{"test_mlx5_huge_page", "uverbs/devicetest", "TestDeviceParityHugePage",
		"C reads the environment when a queue is made, Go when a device is opened."},
	{"test_mlx5_lag_affinity", "uverbs/devicetest", "TestDeviceParityLAGAffinity", ""},
	{"test_mlx5_ooo_qp", "uverbs/devicetest", "TestDeviceParityOOO",
		"The software ConnectX reorders the packets of these QPs."},
	{"test_mlx5_pp", "uverbs/devicetest", "TestDeviceParityPP", ""},
	{"test_mlx5_raw_wqe", "uverbs/devicetest", "TestDeviceParityRawWQE", ""},
	{"test_mlx5_rdmacm", "cm/devicetest", "TestDeviceMLX5RDMACM", ""},
	{"test_mlx5_timestamp", "uverbs/devicetest", "TestDeviceParityTimestamp",
		"C reads the clock by verbs and converts its counts by mlx5dv; Go's `uverbs.Context.WallClock` does that."},
	{"test_mlx5_uar", "provider/mlx5/devx", "TestDeviceParityUAR",
		"Where the kernel has no write-combining pages, on InfiniBand from 6.12 on, Go allocates the other type."},
	{"test_mlx5_udp_sport", "provider/mlx5/devx", "TestDeviceParityUDPSport",
		"On InfiniBand, Go checks that there is no such port."},
	{"test_odp", "uverbs/devicetest", "TestDeviceParityODP",
		"Python's `test_odp_ud_traffic` does not look at what arrives. The rxe of 7.2 sends on-demand memory from the\n" +
			"beginning of a page only, so Go's test, which does look, sends from there. rxe takes advice, which C's\n" +
			"provider does not pass on."},
	{"test_parent_domain", "uverbs/devicetest", "TestDeviceParityParentDomain",
		"On rxe no allocator is asked: the rings are the kernel's memory."},
	{"test_pd", "uverbs/devicetest", "TestDeviceParityPD", ""},
	{"test_qp", "uverbs/devicetest", "TestDeviceParityQP",
		"C has two calls that make a QP, Go has one: the tests with `ex` in their names do what those without do. The\n" +
			"four of \"illegal caps\" make UD QPs, in Python as well."},
	{"test_qpex", "uverbs/devicetest", "TestDeviceParityQPEx",
		"Requests go through `uverbs.SendBatch`, where C has ibv_wr_start and its companions."},
	{"test_rdmacm", "cm/devicetest", "TestDeviceRDMACM",
		"A Python test has two processes, a Go test two goroutines. Python's\n" +
			"`test_rdmacm_async_ex_leave_multicast_traffic` passes when its processes hang; Go's has a third member of\n" +
			"the group tell when nothing can come any more."},
	{"test_relaxed_ordering", "uverbs/devicetest", "TestDeviceParityRelaxedOrdering", ""},
	{"test_rss_traffic", "uverbs/devicetest", "TestDeviceParityRSS", ""},
	{"test_shared_pd", "uverbs/devicetest", "TestDeviceParitySharedPD", ""},
	{"test_srq", "uverbs/devicetest", "TestDeviceParitySRQ", ""},
}

// without lists the modules that have no Go tests, with the reasons.
var without = []struct{ modules, why string }{
	{`test_mlx5_crypto`, "encryption by the adapter, which no device here has"},
	{`test_mlx5_dma_memcpy`, "copies by the adapter, which no device here has"},
	{`test_mlx5_dmabuf`, "Data Direct, which no device here has"},
	{`test_mlx5_(dr|flow)`, "steering by mlx5dv: the library has the flows of verbs"},
	{`test_mlx5_mkey`, "indirect keys and signatures, which no device here has"},
	{`test_mlx5_query_port`, "steering between the ports of an embedded switch"},
	{`test_mlx5_sched`, "schedulers of the adapter, which no device here has"},
	{`test_mlx5_var`, "virtio devices of virtual machines"},
	{`test_mlx5_vfio`, "drivers in user space"},
	{`test_efa\w+`, "EFA devices"},
	{`test_cuda_dmabuf|test_mlx5_cuda_umem`, "CUDA"},
	{`test_tag_matching`, "tag matching, which no device here has"},
}

// reason returns the reason why a module has no Go tests, or "".
func reason(module string) string {
	for _, w := range without {
		if regexp.MustCompile("^(?:" + w.modules + ")$").MatchString(module) {
			return w.why
		}
	}
	return ""
}

// suiteOf returns the suite of a module.
func suiteOf(module string) suite {
	for _, s := range suites {
		if s.module == module {
			return s
		}
	}
	return suite{module: module}
}

// withGo returns the modules that have Go tests.
func withGo() (modules []string) {
	for _, s := range suites {
		modules = append(modules, s.module)
	}
	return modules
}

// goNames returns the subtests of the suite's Go test: the string literals in its
// source that start with "test_".
func (s suite) goNames(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, s.pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == s.goTest {
				names = append(names, subtests(fn)...)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("package %s has no %s with subtests", s.pkg, s.goTest)
	}
	slices.Sort(names)
	return names, nil
}

func subtests(fn *ast.FuncDecl) (names []string) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(name, "test_") {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}
