package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// BenchmarkDoorbell sends requests of 64 bytes from one queue pair to another,
// one by one and eight per doorbell. ns/request is the median time from the
// store of the doorbell until the last completion is in memory, per request,
// without the host's work before and after. Other work on the machine affects
// the median least.
func BenchmarkDoorbell(b *testing.B) {
	for _, x := range worlds[:3] {
		for _, r := range []struct {
			name string
			wqe  func(p *pair) wqe
		}{
			{"SEND", func(p *pair) wqe { return wqe{op: prm.OpcodeSend}.data(p.am, 0, 64) }},
			{"WRITE", func(p *pair) wqe { return wqe{op: prm.OpcodeWrite}.raddr(p.bm, 0).data(p.am, 0, 64) }},
			{"READ", func(p *pair) wqe { return wqe{op: prm.OpcodeRead}.raddr(p.bm, 0).data(p.am, 0, 64) }},
			{"FETCH_ADD", func(p *pair) wqe {
				return wqe{op: prm.OpcodeAtomicFA}.raddr(p.bm, aligned(p.bm)).words(1, 0).data(p.am, 0, 8)
			}},
		} {
			for _, n := range []int{1, 8} {
				b.Run(fmt.Sprintf("%s/%s/%d", x.name, r.name, n), func(b *testing.B) {
					w := &world{t: b}
					w.newLoop()
					for range x.hosts {
						w.add(x.config)
					}
					benchmarkDoorbell(b, newPair(w, engine.QPAttr{}), r.wqe, n)
				})
			}
		}
	}
}

// aligned returns the offset of a word that is aligned for an atomic.
func aligned(r *region) int { return int(-r.addr & 7) }

func benchmarkDoorbell(b *testing.B, p *pair, request func(*pair) wqe, n int) {
	loop := p.a.h.w.loop
	var spent []time.Duration
	for b.Loop() {
		var start time.Time
		loop.Run(func() {
			var last []byte
			for range n {
				w := request(p)
				if w.op == prm.OpcodeSend {
					p.b.recv(p.bm, 0, 64)
				}
				last = p.a.write(w)
			}
			start = time.Now()
			p.a.ring(last)
		})
		for done := 0; done < n; { // an endpoint yields the loop now and then
			took := time.Since(start)
			loop.Run(func() {
				if done += len(p.a.scq.poll()); done == n {
					spent = append(spent, took)
				}
				p.b.rcq.poll()
			})
		}
	}
	slices.Sort(spent)
	b.ReportMetric(float64(spent[len(spent)/2].Nanoseconds())/float64(n), "ns/request")
	loop.Run(func() {
		for _, h := range p.a.h.w.hosts {
			if len(h.violations) > 0 {
				b.Errorf("violations: %+v", h.violations)
			}
			h.Reset()
		}
	})
}
