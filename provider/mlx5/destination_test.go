package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDestinations posts requests of every kind and size on UD and XRC QPs, at every place of the ring, with lists and
// with batches in every order of calls, and compares the contents of the ring and of the register with the oracle's.
func TestDestinations(t *testing.T) {
	const maxSGE, maxInline = 6, 100
	for _, typ := range []uverbs.QPType{uverbs.UD, uverbs.XRCSend} {
		t.Run(typ.String(), func(t *testing.T) {
			b := newBench(t, uverbs.QPConfig{Type: typ, MaxSendWR: 4, MaxSendSGE: maxSGE, MaxInline: maxInline}, nil)
			ah := address(&b.pd)
			o := oracle{qpn: benchQPN}
			blocks := uint32(len(b.sq.blocks))
			for start := range blocks {
				for i, wr := range requests(maxSGE, maxInline) {
					if typ == uverbs.UD && !datagram(&wr) {
						continue
					}
					wr.AH, wr.QPN, wr.QKey, wr.RemoteSRQN = ah, benchDCTN, 0x55667788, 0x99aabb
					for way := range 4 {
						b.sq.cur = b.sq.cur&^(blocks-1) + blocks + start
						clear(b.regs)
						cur, half := b.sq.cur, b.sq.db.Half
						if way < 2 {
							b.Begin()
							buildDC(b, &wr, way == 0, i%2 == 0)
							check(t, b.Submit())
						} else if n, err := b.PostSend([]uverbs.SendWR{wr}); n != 1 || err != nil {
							t.Fatalf("%+v: %d, %v", wr, n, err)
						}
						b.posted(t, &wr, dcWQE(&o, cur, &wr, lead(typ, &wr, ah), 0), cur, half)
					}
				}
			}
		})
	}
}

// datagram reports whether a UD QP accepts a request.
func datagram(wr *uverbs.SendWR) bool {
	var n uint64
	for _, s := range wr.SGL {
		n += uint64(s.Length)
	}
	return (wr.Opcode == uverbs.OpSend || wr.Opcode == uverbs.OpSendImm) && n <= benchOwner{}.MTU()
}

// TestDatagramRefusals checks that invalid datagrams are errors in lists and in batches, also behind a valid one, and
// that no part of them is posted.
func TestDatagramRefusals(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: 16, MaxSendSGE: 2, MaxInline: 100}, nil)
	var other driver.PD
	foreign, closed := address(&other), address(&b.pd)
	provider.AHOf(closed).Close()
	sge := func(n uint32) []uverbs.SGE { return []uverbs.SGE{{Addr: 1, Length: n, LKey: 3}} }
	good := uverbs.SendWR{Opcode: uverbs.OpSend, AH: address(&b.pd), QPN: 5, SGL: sge(8)}
	for name, x := range map[string]struct {
		want error
		edit func(wr *uverbs.SendWR)
	}{
		"no address":       {driver.ErrNoAH, func(wr *uverbs.SendWR) { wr.AH = nil }},
		"closed address":   {driver.ErrClosedAH, func(wr *uverbs.SendWR) { wr.AH = closed }},
		"foreign address":  {uverbs.ErrForeignAH, func(wr *uverbs.SendWR) { wr.AH = foreign }},
		"over the MTU":     {uverbs.ErrTooLong, func(wr *uverbs.SendWR) { wr.SGL = sge(4097) }},
		"a WRITE":          {uverbs.ErrQPType, func(wr *uverbs.SendWR) { wr.Opcode = uverbs.OpWrite }},
		"too many SGEs":    {uverbs.ErrTooManySGEs, func(wr *uverbs.SendWR) { wr.SGL = make([]uverbs.SGE, 3) }},
		"long inline data": {uverbs.ErrInlineTooLong, with(uverbs.OpSend, nil, make([]byte, 1000))},
	} {
		for at := range 3 {
			wrs := repeat(good, 3)
			x.edit(&wrs[at])
			cur := b.sq.cur
			if n, err := b.PostSend(wrs); n != at || !errors.Is(err, x.want) {
				t.Errorf("%s at %d of a list: %d, %v, want %v", name, at, n, err, x.want)
			}
			if posted := b.sq.cur - cur; posted != uint32(2*at) {
				t.Errorf("%s at %d: the list has %d blocks in the queue", name, at, posted)
			}
			cur = b.sq.cur
			b.Begin()
			for i := range wrs {
				buildDC(b, &wrs[i], i%2 == 0, true)
			}
			if err := b.Submit(); !errors.Is(err, x.want) || b.sq.cur != cur {
				t.Errorf("%s at %d of a batch: %v, want %v", name, at, err, x.want)
			}
			b.complete()
		}
	}
	b.Begin()
	b.OpSGE(uverbs.OpSend, 0, 1, 0, 0, good.SGL[0])
	if err := b.Submit(); !errors.Is(err, uverbs.ErrNoAH) {
		t.Errorf("a datagram without an address: %v", err)
	}
}
