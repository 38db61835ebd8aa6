//go:build vm && speed

package speed

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// limits let a process have 10,000 connections: memory, descriptors and mappings.
const limits = "ulimit -l unlimited; ulimit -n 100000; echo 1000000 >/proc/sys/vm/max_map_count; ip link set lo up;"

const idleLimit = 100_000 // instructions in a second, 0.003 % of a CPU

const unlimited = "ulimit -l unlimited; " + ready

// TestScale checks that a post costs the same on 10,000 QPs as on one, and that a QP
// and a CQ take no more memory than in C.
func TestScale(t *testing.T) {
	g := counting(t, 6144) // 10,000 send queues in C take about 700 MB, pinned
	goes, inC := install(t, g, "bench/wrcost"), costInC(t, g, "GOVERBS_SPEED_C", "testdata/wrcost.c")
	scaleOfMemory(t, g, goes, inC)

	const rounds = " 10" // so that every page of a ring has been touched
	one, many := measure(t, g, unlimited+goes+" -rounds"+rounds),
		measure(t, g, unlimited+goes+" -qps 10000 -rounds"+rounds)
	c := measure(t, g, unlimited+inC+" mlx5_0 10000"+rounds)
	t.Logf("%-16s %7s %7s %7s", "instructions", "1 QP", "10,000", "C")
	for _, b := range budgets {
		t.Logf("%-16s %7.1f %7.1f %7.1f", b.name, one[b.name], many[b.name], c[b.ofC()])
		if many[b.name] > one[b.name]*1.02 { // polls sometimes look up another QP
			t.Errorf("%s costs %.1f instructions on 10,000 queue pairs, %.1f on one", b.name, many[b.name], one[b.name])
		}
	}
}

func scaleOfMemory(t *testing.T, g *vm.Guest, goes, inC string) {
	ours, c := measure(t, g, unlimited+goes+" -memory 10000"), measure(t, g, unlimited+inC+" mlx5_0 memory 10000")
	t.Logf("%-16s %7s %7s", "bytes", "Go", "C")
	var all [2]float64
	for _, object := range []string{"CQ", "QP"} {
		for _, what := range []string{".rss", ".mapped", ".mappings"} {
			t.Logf("%-16s %7.0f %7.0f", object+what, ours[object+what], c[object+what])
		}
		if a, b := ours[object+".rss"], c[object+".rss"]; a == 0 || a > b {
			t.Errorf("a %s takes %.0f bytes, C's %.0f", object, a, b)
		}
		for i, f := range []figures{ours, c} {
			all[i] += f[object+".rss"] + f[object+".mapped"]
		}
	}
	// The Go heap maps 64 MiB at a time, so the mapped memory is not exact.
	if all[0] > all[1] {
		t.Errorf("a CQ and a QP take %.0f bytes, resident and mapped, C's %.0f", all[0], all[1])
	}
}

// TestIdle checks that a process with 10,000 idle connections, each with a goroutine that waits for a message, uses no
// CPU time and no more threads than with one, and that a message and its echo cost the same beside them.
func TestIdle(t *testing.T) {
	g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, ICount: true, MemoryMB: 6144, RXE: true})
	program := install(t, g, "bench/rdmacost")
	for _, level := range []string{"cm", "rdma -keepalive -1ns -depth 4 -eager 256 -shared 4096",
		"rsocket -keepalive -1ns -buffer 4096", "tcp"} {
		run := func(n int) figures {
			return measure(t, g, fmt.Sprintf("%s %s -addr 10.9.0.1 -rounds 9 -idle %d -level %s", limits, program, n, level))
		}
		one, many := run(1), run(10000)
		t.Logf("%s: instructions in a second, threads, instructions of a message and its echo", level)
		for _, f := range []figures{one, many} {
			t.Logf("%8.0f %3.0f %8.0f", f["idle.cpu"], f["idle.threads"], f["small"])
		}
		if many["idle.cpu"] > idleLimit {
			t.Errorf("%s: 10,000 idle connections take %.0f instructions in a second", level, many["idle.cpu"])
		}
		if more := many["idle.threads"] - one["idle.threads"]; more > 2 { // as many start now and then
			t.Errorf("%s: 10,000 idle connections take %.0f threads", level, more)
		}
		if a, b := one["small"], many["small"]; a == 0 || b > a*1.05 {
			t.Errorf("%s: a message and its echo cost %.0f instructions, and %.0f alone", level, b, a)
		}
	}
}
