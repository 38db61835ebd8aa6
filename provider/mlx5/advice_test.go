package mlx5

import (
	"runtime"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// The figures in docs/performance.md next to its advice come from these benchmarks.

func perWR(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/WR")
}

// BenchmarkSignal posts and polls lists of 32 requests. Either every request is signaled or only
// the last.
func BenchmarkSignal(b *testing.B) {
	for _, name := range []string{"all", "last"} {
		b.Run(name, func(b *testing.B) {
			s := newStep(b, 32)
			if name == "last" {
				s.few, s.wcs = true, s.wcs[:1]
				for i := range s.wrs[:31] {
					s.wrs[i].Flags = 0
				}
			}
			for b.Loop() {
				if !s.run() {
					b.Fatal("a step failed")
				}
			}
			perWR(b, 32)
		})
	}
}

// BenchmarkQueues runs GOMAXPROCS goroutines, each with its own queue pair and CQ, or all with
// the same ones.
func BenchmarkQueues(b *testing.B) {
	b.Run("own", func(b *testing.B) {
		steps := make(chan *step, runtime.GOMAXPROCS(0))
		for range cap(steps) {
			steps <- newStep(b, 1)
		}
		b.RunParallel(func(p *testing.PB) {
			s := <-steps
			for p.Next() {
				if !s.run() {
					b.Error("a step failed")
					return
				}
			}
		})
		perWR(b, 1)
	})
	b.Run("shared", func(b *testing.B) {
		s := newStep(b, 1)
		var mu sync.Mutex
		b.RunParallel(func(p *testing.PB) {
			for p.Next() {
				mu.Lock()
				ok := s.run()
				mu.Unlock()
				if !ok {
					b.Error("a step failed")
					return
				}
			}
		})
		perWR(b, 1)
	})
}

// BenchmarkThread posts and polls in a goroutine, either free or locked to a thread. With
// handoff, each completion is passed to another goroutine, which passes it back.
func BenchmarkThread(b *testing.B) {
	for _, c := range []struct {
		name            string
		locked, handoff bool
	}{{"free", false, false}, {"locked", true, false}, {"free/handoff", false, true}, {"locked/handoff", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			if c.locked {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
			}
			s := newStep(b, 1)
			to, back := make(chan uverbs.WC), make(chan uverbs.WC)
			go func() {
				for wc := range to {
					back <- wc
				}
			}()
			defer close(to)
			for b.Loop() {
				if !s.run() {
					b.Fatal("a step failed")
				}
				if c.handoff {
					to <- s.wcs[0]
					<-back
				}
			}
			perWR(b, 1)
		})
	}
}
