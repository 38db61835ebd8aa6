package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// TestSums adds up the vectors of 2 to 5 machines: vectors that the ring divides evenly and not, with parts that are
// empty, sent at once and read by the next one.
func TestSums(t *testing.T) {
	for n := 2; n <= 5; n++ {
		for _, count := range []int{1, n, 1003, 100_003} {
			t.Run(fmt.Sprintf("%d of %d", count, n), func(t *testing.T) { sum(t, n, count, 0) })
		}
	}
}

// TestOtherLengths has a process with a longer vector, which is told apart from a wrong sum.
func TestOtherLengths(t *testing.T) { sum(t, 2, 1000, 100) }

// sum runs n processes with vectors of count numbers, the first with more of them.
func sum(t *testing.T, n, count, more int) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	net := verbstest.NewNetwork(t)
	machines, addrs := make([]*verbstest.Machine, n), make([]string, n)
	for i := range machines {
		machines[i] = net.Machine()
		addrs[i] = machines[i].AddrPort(7471).String()
	}
	ended := make(chan error, n)
	for rank, m := range machines {
		m.Run(func() {
			own := count
			if rank == 0 {
				own += more
			}
			go func() { ended <- run(ctx, rank, addrs, own, 3, io.Discard) }()
		})
	}
	var all error
	for range n {
		all = errors.Join(all, <-ended)
	}
	if (all != nil) != (more > 0) {
		t.Error(all)
	}
}

func TestRank(t *testing.T) {
	if run(t.Context(), 2, []string{"a", "b"}, 1, 1, io.Discard) == nil {
		t.Error("rank 2 of 2 is accepted")
	}
}
