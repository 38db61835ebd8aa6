package arch

import (
	"go/ast"
	"maps"
	"strings"
	"testing"
)

// rawCalls lists the functions of the library that make system calls of which Go's scheduler is not
// notified, with the reason why the call does not sleep. While it sleeps, a garbage collection waits for
// it, and its CPU is lost to other goroutines.
//
// A goroutine that makes only such calls after a wait leaves the runtime's monitor asleep, so that
// nothing is preempted for up to 60 s. The reads that follow a wait in the runtime's poller therefore
// report their results to monitor.Wait.
var rawCalls = map[string]string{
	"uverbs/mem_unsafe.go: readNow":            "a nonblocking read of events, by uverbs/cq_record.go with a monitor.Wait",
	"internal/rdmacm/command_unsafe.go: write": "only NextEvent, a nonblocking read of events, with a monitor.Wait",
	"internal/ioctl/cmd_unsafe.go: writeNow": "doorbells and arming, which acquire no lock that sleeps; after one " +
		"that took long, rxe uses regular calls",
	"internal/machine/cpu_unsafe.go: CPUNode": "the kernel reads the number of the CPU, once in 64 calls of a Client",
}

// TestRawSystemCalls checks that rawCalls lists the functions that make raw system calls, and no others.
func TestRawSystemCalls(t *testing.T) {
	left := maps.Clone(rawCalls)
	for _, f := range files(t) {
		if f.test() || strings.HasPrefix(f.path, testbed+"/") {
			continue
		}
		for _, d := range f.ast.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok || !strings.HasPrefix(sel.Sel.Name, "RawSyscall") {
					return true
				}
				name := f.path + ": "
				if fn, ok := d.(*ast.FuncDecl); ok {
					name += fn.Name.Name
				}
				if rawCalls[name] == "" {
					t.Errorf("%s: %s makes a raw system call: use a regular one, or add it to rawCalls with the reason why "+
						"it cannot sleep", f.at(n), name)
				}
				delete(left, name)
				return true
			})
		}
	}
	for name := range left {
		t.Errorf("%s makes no raw system call: remove it from rawCalls", name)
	}
}
