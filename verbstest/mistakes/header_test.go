package mistakes

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestUnusedHeader checks that the unused bytes in front of a datagram say where its payload is, and that those of its
// network header are not replaced.
func TestUnusedHeader(t *testing.T) {
	const text = "payload at offset 40"
	for _, c := range []struct {
		name    string
		options []verbstest.Option
		want    string // in front of what remains of the 40 bytes
	}{
		{"IPv4", nil, text + "\x45"},
		{"without a GRH", []verbstest.Option{verbstest.InfiniBand()}, text + text},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := verbstest.NewNetwork(t, c.options...).Machine()
			m.Run(func() {
				p := newPair(m.Device(), config{kind: uverbs.UD})
				defer p.close()
				must(p.b.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{p.b.mr.SGE(0, 128)}}))
				must(p.a.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, AH: p.to(p.b), QPN: p.b.qp.QPN(), QKey: qkey,
					Inline: []byte("hello")}))
				if seen := completion(p.b, patience); seen != "success" {
					t.Fatal(seen)
				}
				if got := string(p.b.mr.Bytes()[:45]); !strings.HasPrefix(got, c.want) || got[40:] != "hello" {
					t.Errorf("received %q, want %q, and the message behind 40 bytes", got, c.want)
				}
			})
		})
	}
}
