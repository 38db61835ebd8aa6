package mlx5

import (
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// A step posts n requests, executes them with a loop that replaces the device, and polls their
// completions.
type step struct {
	*bench
	cq   *cq
	wrs  []uverbs.SendWR
	wcs  []uverbs.WC
	next uint32 // next entry of the CQ
	done uint32 // blocks executed
	few  bool   // only the last request of each post is signaled
}

func newStep(b *testing.B, n int) *step {
	b.Helper()
	s := &step{bench: benchQP(b), wcs: make([]uverbs.WC, n)}
	p, _, err := s.ctx.CreateCQ(&driver.CQConfig{Entries: 255}, noCQCommand)
	check(b, err)
	b.Cleanup(func() { check(b, p.Retire(true)) })
	s.cq = p.(*cq)
	s.wrs = repeat(uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: 0x2000, RKey: 8,
		SGL: []uverbs.SGE{{Addr: 0x1000, Length: 32, LKey: 7}}}, n)
	return s
}

func (s *step) run() bool {
	n, err := s.PostSend(s.wrs)
	if n != len(s.wrs) || err != nil {
		return false
	}
	for i := range s.wrs {
		if !s.few || i == len(s.wrs)-1 {
			e := s.cq.at(s.next)
			e[4] = be(uint64(s.target.key) << 32)
			e[7] = be(benchQPN<<32 | uint64(s.done&0xffff)<<16 | s.cq.owner(s.next))
			s.next++
		}
		s.done++
	}
	n, err = s.cq.Poll(s.wcs)
	return n == len(s.wcs) && err == nil
}

// BenchmarkStep measures a post and a poll together, including the loop that replaces the device.
func BenchmarkStep(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "32": 32} {
		b.Run(name, func(b *testing.B) {
			s := newStep(b, n)
			for b.Loop() {
				if !s.run() {
					b.Fatal("a step failed")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/WR")
		})
	}
}

// BenchmarkTail measures how long single steps take while another goroutine produces garbage. Collections must not
// delay a loop that does not allocate.
func BenchmarkTail(b *testing.B) {
	for _, c := range []struct {
		name    string
		percent int
		garbage bool // the loop itself allocates
	}{{"alone", -1, false}, {"GOGC=100", 100, false}, {"GOGC=10", 10, false}, {"GOGC=100/allocating", 100, true}} {
		b.Run(c.name, func(b *testing.B) {
			s := newStep(b, 1)
			stop := churn(c.percent)
			defer stop()
			times := make([]time.Duration, 0, 1<<20)
			for b.Loop() {
				began := time.Now()
				ok := s.run()
				if c.garbage {
					kept = new(int64)
				}
				took := time.Since(began)
				if !ok {
					b.Fatal("a step failed")
				}
				if len(times) < cap(times) {
					times = append(times, took)
				}
			}
			slices.Sort(times)
			for name, at := range map[string]float64{"p50-ns": 0.5, "p99-ns": 0.99, "p99.9-ns": 0.999, "max-ns": 1} {
				i := min(int(at*float64(len(times))), len(times)-1)
				b.ReportMetric(float64(times[i].Nanoseconds()), name)
			}
		})
	}
}

var kept *int64

// churn produces garbage, and keeps some memory alive, until stop is called. With a negative
// percentage it does nothing.
func churn(percent int) (stop func()) {
	if percent < 0 {
		return func() {}
	}
	was := debug.SetGCPercent(percent)
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		kept := make([][]byte, 1<<12)
		for i := 0; ; i++ {
			select {
			case <-end:
				runtime.KeepAlive(kept)
				return
			default:
				kept[i%len(kept)] = make([]byte, 64+i%1024)
			}
		}
	})
	return func() {
		close(end)
		wg.Wait()
		debug.SetGCPercent(was)
	}
}
