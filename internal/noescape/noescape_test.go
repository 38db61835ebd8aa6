package noescape

import (
	"runtime"
	"testing"
)

type consumer interface{ sum([]int) int }

type adder struct{ rounds int }

// sum moves the stack and runs the garbage collector while it holds the slice.
func (a *adder) sum(s []int) int {
	a.rounds++
	n := 0
	for _, v := range s {
		n += v
	}
	if a.rounds%100 == 0 {
		grow(2000)
		runtime.GC()
		for _, v := range s {
			n += v
		}
		n /= 2
	}
	return n
}

func grow(depth int) int {
	var pad [64]byte
	if depth == 0 {
		return int(pad[0])
	}
	return grow(depth-1) + int(pad[depth%64])
}

func TestSliceStaysOnTheStack(t *testing.T) {
	var c consumer = new(adder)
	allocs := testing.AllocsPerRun(1000, func() {
		if got := c.sum(Slice([]int{1, 2, 3, 4})); got != 10 {
			t.Fatalf("sum is %d, want 10", got)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if got := Slice([]int(nil)); got != nil {
		t.Errorf("Slice(nil) = %v", got)
	}
}

func BenchmarkSlice(b *testing.B) {
	s := []int{1, 2, 3}
	for b.Loop() {
		s = Slice(s)
	}
}
