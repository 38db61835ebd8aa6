package mlx5

import (
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestFenceOutlivesRefusedRequests checks that the fence after a LOCAL_INV applies to the next request that is posted,
// even if requests were rejected or aborted in between.
func TestFenceOutlivesRefusedRequests(t *testing.T) {
	sge := uverbs.SGE{Addr: 1, Length: 8, LKey: 3}
	for name, between := range map[string]func(*bench) error{
		"nothing": func(*bench) error { return uverbs.ErrState },
		"too many SGEs": func(b *bench) error {
			return second(b.PostSend([]uverbs.SendWR{{SGL: []uverbs.SGE{sge, sge, sge}}}))
		},
		"inline too long": func(b *bench) error { return second(b.PostSend([]uverbs.SendWR{{Inline: make([]byte, 4096)}})) },
		"an aborted batch": func(b *bench) error {
			b.Begin()
			b.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
			b.Abort()
			return uverbs.ErrState
		},
		"a refused batch": func(b *bench) error {
			b.Begin()
			b.Op(uverbs.OpSend, 0, 1, 0, 0, 0)
			for range 3 {
				b.SGE(sge)
			}
			return b.Submit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, uverbs.QPConfig{MaxSendWR: 16, MaxSendSGE: 2, MaxInline: 32}, nil)
			good(b.PostSend([]uverbs.SendWR{{Opcode: uverbs.OpLocalInv, InvalidateRKey: 7}}))(t)
			if between(b) == nil {
				t.Fatal("no error")
			}
			for _, want := range []uint8{ceSmallFence, 0} {
				at := b.sq.cur
				good(b.PostSend([]uverbs.SendWR{{SGL: []uverbs.SGE{sge}}}))(t)
				if ce := uint8(be(b.sq.blocks[at&b.sq.mask][1]) >> 32); ce != want {
					t.Errorf("the next has flags %#x, want %#x", ce, want)
				}
			}
		})
	}
}
