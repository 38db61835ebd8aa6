package mlx5

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// These benchmarks measure posts and polls on queue memory. The register is plain memory, and the benchmark writes the
// completions.

func benchQP(b *testing.B) *bench {
	q := newBench(b, uverbs.QPConfig{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInline: 32}, nil)
	b.ReportAllocs()
	return q
}

func BenchmarkPost(b *testing.B) {
	sgl := []uverbs.SGE{{Addr: 0x1000, Length: 32, LKey: 7}}
	data := make([]byte, 32)
	wr := uverbs.SendWR{WRID: 1, Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: 0x2000, RKey: 8}
	bySGE, inline := wr, wr
	bySGE.SGL, inline.Inline = sgl, data
	for name, wr := range map[string]uverbs.SendWR{"SGE": bySGE, "inline": inline} {
		for n, list := range map[string][]uverbs.SendWR{"1": {wr}, "32": repeat(wr, 32)} {
			b.Run(name+"/list"+n, func(b *testing.B) {
				q := benchQP(b)
				for b.Loop() {
					if _, err := q.PostSend(list); err != nil {
						b.Fatal(err)
					}
					q.complete()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(list)), "ns/WR")
			})
		}
		for calls := 1; calls <= 2; calls++ { // of the builder, for each request
			b.Run(fmt.Sprintf("%s/batch32/calls%d", name, calls), func(b *testing.B) {
				q := benchQP(b)
				for b.Loop() {
					q.Begin()
					for range 32 {
						add(q, calls, &wr)
					}
					if err := q.Submit(); err != nil {
						b.Fatal(err)
					}
					q.complete()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*32), "ns/WR")
			})
		}
	}
	b.Run("receive/list1", func(b *testing.B) {
		q := benchQP(b)
		list := []uverbs.RecvWR{{WRID: 1, SGL: sgl}}
		for b.Loop() {
			if _, err := q.PostRecv(list); err != nil {
				b.Fatal(err)
			}
			*q.rq.tail = q.rq.head
		}
	})
}

// add adds a WRITE to a batch with one call or two.
func add(q provider.QP, calls int, wr *uverbs.SendWR) {
	const op, f = uverbs.OpWrite, uverbs.Signaled
	switch inline := len(wr.Inline) > 0; {
	case calls == 1 && inline:
		q.OpInline(op, f, 1, 0x2000, 8, wr.Inline)
	case calls == 1:
		q.OpSGE(op, f, 1, 0x2000, 8, wr.SGL[0])
	default:
		q.Op(op, f, 1, 0x2000, 8, 0)
		if inline {
			q.Inline(wr.Inline)
		} else {
			q.SGE(wr.SGL[0])
		}
	}
}

func repeat(wr uverbs.SendWR, n int) (all []uverbs.SendWR) {
	for range n {
		all = append(all, wr)
	}
	return all
}

// BenchmarkPoll polls a ring in which all entries are valid. The benchmark flips the owner bits on each lap, with the
// timer stopped.
func BenchmarkPoll(b *testing.B) {
	for name, n := range map[string]int{"1": 1, "32": 32} {
		b.Run(name, func(b *testing.B) {
			q := benchQP(b)
			p, _, err := q.ctx.CreateCQ(&driver.CQConfig{Entries: 1<<16 - 1}, noCQCommand)
			check(b, err)
			c := p.(*cq)
			defer c.Retire(true)
			fillRing := func() {
				for i := range c.mask + 1 {
					e := c.at(c.ci + i)
					e[4] = be(uint64(q.target.key) << 32)
					e[7] = be(uint64(benchQPN)<<32 | uint64(i&0xff)<<16 | c.owner(c.ci+i))
				}
			}
			fillRing()
			wcs := make([]uverbs.WC, n)
			left := int(c.mask) + 1
			for b.Loop() {
				if left < n {
					b.StopTimer()
					fillRing()
					left = int(c.mask) + 1
					b.StartTimer()
				}
				if got, err := c.Poll(wcs); got != n || err != nil {
					b.Fatal(got, err)
				}
				left -= n
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/CQE")
		})
	}
}
