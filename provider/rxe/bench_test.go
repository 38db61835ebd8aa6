package rxe

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// The benchmarks need no device: the doorbell does nothing and the benchmark moves the kernel's indices. They measure
// only the encoding of requests.

// quiet is a doorbell that does nothing.
type quiet struct{}

func (quiet) ring() error  { return nil }
func (quiet) reset() error { return nil }
func (quiet) fail() error  { return nil }

// benchQP returns a QP and the consumer indices of its send and receive queue. The
// benchmark moves them, which costs one locked instruction in addition to those of
// the QP.
func benchQP(t testing.TB) (q *qp, sent, received *atomic.Uint32) {
	k, q, _ := newKernel(t, testCap(255, 255, 4, 64), 511)
	q.sq.bell = quiet{}
	return q, index(k.sq.b, 256), index(k.rq.b, 256)
}

func sendList(n int, inline bool) []uverbs.SendWR {
	wrs := make([]uverbs.SendWR, n)
	for i := range wrs {
		wrs[i] = uverbs.SendWR{WRID: uint64(i), Opcode: uverbs.OpWrite, Flags: uverbs.Signaled, RemoteAddr: base, RKey: rkey}
		if inline {
			wrs[i].Inline = make([]byte, 32)
		} else {
			wrs[i].SGL = []uverbs.SGE{sge(0, 32)}
		}
	}
	return wrs
}

type path struct {
	name string
	n    int
	run  func()
}

// datagramPaths returns the hot paths of UD.
func datagramPaths(t testing.TB) []path {
	const n = 32
	ah := testAH(t, ahNum)
	wrs := sendList(n, false)
	for i := range wrs {
		wrs[i].Opcode, wrs[i].AH, wrs[i].QPN, wrs[i].QKey = uverbs.OpSend, ah, qpn, qkey
	}
	q, sent, _ := benchQP(t)
	bq, bsent, _ := benchQP(t)
	for _, q := range []*qp{q, bq} {
		q.sq.sendDatagrams(nil, func() uint64 { return mtu })
	}
	return []path{{"PostSend/ud/32", n, func() {
		if got, err := q.PostSend(wrs); got != n || err != nil {
			t.Fatalf("%d of %d: %v", got, n, err)
		}
		sent.Store(q.sq.cur)
	}}, {"Batch/ud/32", n, func() {
		bq.Begin()
		for i := range n {
			bq.Op(uverbs.OpSend, uverbs.Signaled, uint64(i), 0, 0, 0)
			udAddr(bq, ah, qpn, qkey)
			bq.SGE(uverbs.SGE{Addr: base, Length: 32, LKey: lkey})
		}
		if err := bq.Submit(); err != nil {
			t.Fatal(err)
		}
		bsent.Store(bq.sq.cur)
	}}}
}

// hotPaths returns the calls that must not allocate, with the number of work
// requests or completions in each.
func hotPaths(t testing.TB) []path {
	must := func(n, want int, err error) {
		if n != want || err != nil {
			t.Fatalf("%d of %d: %v", n, want, err)
		}
	}
	var paths []path
	for _, n := range []int{1, 32} {
		for _, inline := range []bool{false, true} {
			kind := "sge"
			if inline {
				kind = "inline"
			}
			wrs := sendList(n, inline)
			q, sent, _ := benchQP(t)
			paths = append(paths, path{"PostSend/" + kind + "/" + strconv.Itoa(n), n, func() {
				got, err := q.PostSend(wrs)
				must(got, n, err)
				sent.Store(q.sq.cur)
			}})
			bq, bsent, _ := benchQP(t)
			data := make([]byte, 32)
			paths = append(paths, path{"Batch/" + kind + "/" + strconv.Itoa(n), n, func() {
				bq.Begin()
				for i := range n {
					bq.Op(uverbs.OpWrite, uverbs.Signaled, uint64(i), base, rkey, 0)
					if inline {
						bq.Inline(data)
					} else {
						bq.SGE(uverbs.SGE{Addr: base, Length: 32, LKey: lkey})
					}
				}
				must(0, 0, bq.Submit())
				bsent.Store(bq.sq.cur)
			}})
		}
		rq, _, received := benchQP(t)
		recvs := make([]uverbs.RecvWR, n)
		for i := range recvs {
			recvs[i].SGL = []uverbs.SGE{sge(0, 64)}
		}
		paths = append(paths, path{"PostRecv/" + strconv.Itoa(n), n, func() {
			got, err := rq.PostRecv(recvs)
			must(got, n, err)
			received.Store(rq.rq.cur)
		}})
		k, c := newTestCQ(t, 255)
		for i := range k.mask + 1 {
			fill(k.element(i), []field{{0, 8, uint64(i)}, {12, 4, 128}, {20, 4, 64}, {36, 4, 1}})
		}
		wcs := make([]uverbs.WC, n)
		paths = append(paths, path{"Poll/" + strconv.Itoa(n), n, func() {
			k.own = (k.own + uint32(n)) & k.mask
			index(k.b, 128).Store(k.own)
			got, err := c.Poll(wcs)
			must(got, n, err)
		}})
	}
	paths = append(paths, datagramPaths(t)...)
	_, c := newTestCQ(t, 255)
	wcs := make([]uverbs.WC, 16)
	return append(paths, path{"Poll/empty", 1, func() {
		got, err := c.Poll(wcs)
		must(got, 0, err)
	}})
}

func TestNothingAllocated(t *testing.T) {
	for _, p := range hotPaths(t) {
		if n := testing.AllocsPerRun(100, p.run); n != 0 {
			t.Errorf("%s: %v allocations", p.name, n)
		}
	}
}

func BenchmarkRings(b *testing.B) {
	for _, p := range hotPaths(b) {
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.run()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.n), "ns/WR")
		})
	}
}
