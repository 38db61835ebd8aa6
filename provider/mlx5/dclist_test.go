package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDCRefusedInList checks that a request of a DCI that is refused ends a list, and that those before it are posted.
func TestDCRefusedInList(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 16, MaxSendSGE: 2, MaxInline: 100}, nil)
	var other driver.PD
	foreign, closed := address(&other), address(&b.pd)
	provider.AHOf(closed).Close()
	sge, inline := []uverbs.SGE{{Addr: 1, Length: 8, LKey: 3}}, make([]byte, 20)
	good := toDCT(address(&b.pd), 0, uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: sge},
		uverbs.SendWR{Opcode: uverbs.OpWrite, Inline: inline}, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: sge},
		uverbs.SendWR{Opcode: uverbs.OpWriteImm, SGL: sge}, uverbs.SendWR{Opcode: uverbs.OpFetchAdd, SGL: sge})
	long, tooLong := []uverbs.SGE{{Length: 1<<31 + 1}}, make([]byte, 1000)
	for name, x := range map[string]struct {
		want error
		edit func(wr *uverbs.SendWR)
	}{
		"no address":             {uverbs.ErrNoAH, func(wr *uverbs.SendWR) { wr.AH = nil }},
		"closed address":         {driver.ErrClosedAH, func(wr *uverbs.SendWR) { wr.AH = closed }},
		"foreign address":        {uverbs.ErrForeignAH, func(wr *uverbs.SendWR) { wr.AH = foreign }},
		"stream":                 {uverbs.ErrNoStreams, func(wr *uverbs.SendWR) { wr.DCStream = 1 }},
		"opcode":                 {uverbs.ErrOpcode, func(wr *uverbs.SendWR) { wr.Opcode = 200 }},
		"flag":                   {uverbs.ErrOpcode, func(wr *uverbs.SendWR) { wr.Flags = 0x80 }},
		"FLUSH":                  {uverbs.ErrOpNotSupported, func(wr *uverbs.SendWR) { wr.Opcode = uverbs.OpFlush }},
		"too many SGEs":          {uverbs.ErrTooManySGEs, with(uverbs.OpWrite, make([]uverbs.SGE, 3), nil)},
		"inline data and an SGE": {uverbs.ErrMalformed, with(uverbs.OpWrite, sge, inline)},
		"inline data of a READ":  {uverbs.ErrMalformed, with(uverbs.OpRead, nil, inline)},
		"too much inline data":   {uverbs.ErrInlineTooLong, with(uverbs.OpSend, nil, tooLong)},
		"over 2^31 bytes":        {uverbs.ErrRange, with(uverbs.OpSend, long, nil)},
	} {
		for at := range good {
			wrs := append([]uverbs.SendWR(nil), good...)
			x.edit(&wrs[at])
			head := b.sq.head
			if n, err := b.dci.PostSend(wrs); n != at || !errors.Is(err, x.want) {
				t.Errorf("%s at %d: %d, %v, want %v", name, at, n, err, x.want)
			}
			if posted := b.sq.head - head; posted != uint32(at) {
				t.Errorf("%s at %d: %d requests are in the queue", name, at, posted)
			}
			b.complete()
		}
	}
}

// with returns a function that makes a request one of another kind.
func with(op uverbs.Opcode, sges []uverbs.SGE, inline []byte) func(wr *uverbs.SendWR) {
	return func(wr *uverbs.SendWR) { wr.Opcode, wr.SGL, wr.Inline = op, sges, inline }
}

// TestDCFull checks that a DCI accepts requests until its queue is full, and again when some have completed.
func TestDCFull(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 8, MaxSendSGE: 1, MaxInline: 20}, nil)
	room := int(b.sq.maxPost)
	for name, wr := range map[string]uverbs.SendWR{
		"SGE":    {Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{{Addr: 1, Length: 8, LKey: 3}}},
		"SEND":   {Opcode: uverbs.OpSend, SGL: []uverbs.SGE{{Addr: 1, Length: 8, LKey: 3}}},
		"inline": {Opcode: uverbs.OpWrite, Inline: make([]byte, 20)},
	} {
		one := toDCT(address(&b.pd), 0, wr)
		for range 3 {
			for i := range room {
				if n, err := b.dci.PostSend(one); n != 1 || err != nil {
					t.Fatalf("%s: request %d: %d, %v", name, i, n, err)
				}
			}
			if n, err := b.dci.PostSend(one); n != 0 || !errors.Is(err, uverbs.ErrQueueFull) {
				t.Errorf("%s: into a full queue: %d, %v", name, n, err)
			}
			b.complete()
			many := make([]uverbs.SendWR, room+1)
			for i := range many {
				many[i] = one[0]
			}
			if n, err := b.dci.PostSend(many); n != room || !errors.Is(err, uverbs.ErrQueueFull) {
				t.Errorf("%s: a list that is too long: %d, %v, want %d", name, n, err, room)
			}
			b.complete()
		}
	}
}
