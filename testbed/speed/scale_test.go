//go:build vm && speed

package speed

import "testing"

// TestScale prints what posts cost on 10,000 queue pairs, and what memory a queue
// pair and a CQ take, beside C.
func TestScale(t *testing.T) {
	g := counting(t)
	goes, inC := install(t, g, "bench/wrcost"), costInC(t, g)
	const ready = "ulimit -l unlimited; until grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state; do sleep 0.1; done; "
	for _, args := range [][2]string{
		{" -rounds 4", " mlx5_0 1 4"}, {" -rounds 4 -qps 10000", " mlx5_0 10000 4"}, {" -memory 10000", " mlx5_0 memory 10000"},
	} {
		t.Logf("Go%s: %v\nC%s: %v", args[0], measure(t, g, ready+goes+args[0]), args[1], measure(t, g, ready+inC+args[1]))
	}
}
