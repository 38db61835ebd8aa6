package mlx5

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// A postKind is a kind of request that BenchmarkPostKinds posts.
type postKind struct {
	name   string
	typ    uverbs.QPType
	op     uverbs.Opcode
	sges   int
	inline int
}

var postKinds = []postKind{
	{"RC/WRITE/SGE", uverbs.RC, uverbs.OpWrite, 1, 0},
	{"RC/WRITE/inline", uverbs.RC, uverbs.OpWrite, 0, 32},
	{"RC/SEND/SGE", uverbs.RC, uverbs.OpSend, 1, 0},
	{"RC/SEND_IMM/SGE", uverbs.RC, uverbs.OpSendImm, 1, 0},
	{"RC/SEND_INV/SGE", uverbs.RC, uverbs.OpSendInv, 1, 0},
	{"RC/SEND_INV/inline", uverbs.RC, uverbs.OpSendInv, 0, 32},
	{"RC/LOCAL_INV", uverbs.RC, uverbs.OpLocalInv, 0, 0},
	{"DC/WRITE/SGE", uverbs.DCI, uverbs.OpWrite, 1, 0},
	{"DC/WRITE/inline", uverbs.DCI, uverbs.OpWrite, 0, 32},
	{"DC/SEND/SGE", uverbs.DCI, uverbs.OpSend, 1, 0},
	{"DC/SEND_INV/SGE", uverbs.DCI, uverbs.OpSendInv, 1, 0},
	{"UD/SEND/SGE", uverbs.UD, uverbs.OpSend, 1, 0},
	{"UD/SEND/inline", uverbs.UD, uverbs.OpSend, 0, 32},
	{"UD/SEND_IMM/SGE", uverbs.UD, uverbs.OpSendImm, 1, 0},
	{"XRC/WRITE/SGE", uverbs.XRCSend, uverbs.OpWrite, 1, 0},
	{"XRC/WRITE/inline", uverbs.XRCSend, uverbs.OpWrite, 0, 32},
	{"XRC/SEND/SGE", uverbs.XRCSend, uverbs.OpSend, 1, 0},
	{"XRC/SEND_INV/SGE", uverbs.XRCSend, uverbs.OpSendInv, 1, 0},
}

// request returns a request of the kind, for a QP of pd.
func (k *postKind) request(b *bench) uverbs.SendWR {
	wr := uverbs.SendWR{WRID: 1, Opcode: k.op, Flags: uverbs.Signaled, Inline: make([]byte, k.inline), QPN: 9, QKey: 1,
		DCKey: 1, RemoteSRQN: 5}
	if k.sges > 0 {
		wr.SGL = []uverbs.SGE{{Addr: 0x1000, Length: 32, LKey: 7}}
	}
	switch k.op {
	case uverbs.OpWrite:
		wr.RemoteAddr, wr.RKey = 0x2000, 8
	case uverbs.OpSendImm:
		wr.Imm = 77
	case uverbs.OpSendInv, uverbs.OpLocalInv:
		wr.InvalidateRKey = 78
	}
	if k.typ == uverbs.UD || k.typ == uverbs.DCI {
		wr.AH = address(&b.pd)
	}
	return wr
}

// add adds the request to a batch, as the methods of uverbs.SendBatch do.
func (k *postKind) add(q provider.QP, wr *uverbs.SendWR) {
	imm := wr.Imm | wr.InvalidateRKey
	switch {
	case imm == 0 && k.inline > 0:
		q.OpInline(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.Inline)
	case imm == 0 && k.sges > 0:
		q.OpSGE(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, wr.SGL[0])
	default:
		q.Op(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, imm)
		if k.inline > 0 {
			q.Inline(wr.Inline)
		} else if k.sges > 0 {
			q.SGE(wr.SGL[0])
		}
	}
	switch k.typ {
	case uverbs.UD:
		q.UDAddr(provider.AHOf(wr.AH), wr.QPN, wr.QKey)
	case uverbs.DCI:
		q.DCAddr(provider.AHOf(wr.AH), wr.QPN, wr.DCKey, 0)
	case uverbs.XRCSend:
		q.RemoteSRQ(wr.RemoteSRQN)
	}
}

// post posts n requests of the kind, as a batch or as a list, and returns a function that does it again.
func (k *postKind) poster(b *bench, n int, batch bool) func() error {
	wr := k.request(b)
	list := repeat(wr, n)
	q := b.QP
	if !batch {
		return func() error {
			_, err := q.PostSend(list)
			return err
		}
	}
	return func() error {
		q.Begin()
		for range n {
			k.add(q, &wr)
		}
		return q.Submit()
	}
}

// postShapes are the ways in which BenchmarkPostKinds posts requests.
var postShapes = []struct {
	name  string
	n     int
	batch bool
}{{"list1", 1, false}, {"list32", 32, false}, {"batch32", 32, true}}

func (k *postKind) bench(t testing.TB) *bench {
	return newBench(t, uverbs.QPConfig{Type: k.typ, MaxSendWR: 256, MaxSendSGE: 1, MaxInline: 32}, nil)
}

// BenchmarkPostKinds measures posts of requests of every kind. The figure ns/WR is the time for each request.
func BenchmarkPostKinds(b *testing.B) {
	for _, k := range postKinds {
		for _, shape := range postShapes {
			b.Run(fmt.Sprintf("%s/%s", k.name, shape.name), func(b *testing.B) {
				b.ReportAllocs()
				q := k.bench(b)
				post := k.poster(q, shape.n, shape.batch)
				for b.Loop() {
					if err := post(); err != nil {
						b.Fatal(err)
					}
					q.complete()
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*shape.n), "ns/WR")
			})
		}
	}
}

// TestPostKindsDoNotAllocate checks that no post of BenchmarkPostKinds allocates.
func TestPostKindsDoNotAllocate(t *testing.T) {
	for _, k := range postKinds {
		for _, shape := range postShapes {
			q := k.bench(t)
			post := k.poster(q, shape.n, shape.batch)
			if n := testing.AllocsPerRun(20, func() {
				check(t, post())
				q.complete()
			}); n != 0 {
				t.Errorf("%s, %s: %.1f allocations", k.name, shape.name, n)
			}
		}
	}
}
