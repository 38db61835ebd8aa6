package mlx5

import (
	"bytes"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// FuzzBatch checks that a batch of several requests, common and uncommon in any order, has the same effect as a list of
// them, or no effect if one of them is invalid.
func FuzzBatch(f *testing.F) {
	for kind := range uint8(4) {
		f.Add(bytes.Repeat([]byte{3, 0, 0, 0, 2, 0, 1, 0, 9, 0}, 60), kind)
		f.Add(bytes.Repeat([]byte{1, 0, 7, 0, 4, 0, 0, 0}, 90), kind)
	}
	f.Fuzz(func(t *testing.T, in []byte, kind uint8) {
		list, batch := newFuzzed(t, kind), newFuzzed(t, kind)
		o := oracle{qpn: benchQPN}
		e := eater(in)
		for len(e) > 0 {
			var wrs []uverbs.SendWR
			for range 1 + e.next(5) {
				wr := list.wr(&e)
				if wr.Opcode != uverbs.OpBindMW && wr.Opcode < driver.Opcodes {
					wrs = append(wrs, wr)
				}
			}
			cur, head := batch.sq.cur, batch.sq.head
			batch.Begin()
			for i := range wrs {
				batch.add(&wrs[i], wrs[i].WRID%8 < 4)
			}
			if err := batch.Submit(); err != nil {
				if batch.sq.cur != cur || batch.sq.head != head {
					t.Fatalf("%+v: %v, and something was posted", wrs, err)
				}
				if n, again := list.post(wrs...); again == nil {
					t.Fatalf("%+v: the batch says %v, the list posts %d", wrs, err, n)
				}
				return // the two differ from here on
			}
			if n, err := list.post(wrs...); n != len(wrs) || err != nil {
				t.Fatalf("%+v: the list says %d, %v, the batch nothing", wrs, n, err)
			}
			for i := range wrs {
				want := list.wqe(&o, cur, &wrs[i])
				if got := batch.at(cur, len(want)); !bytes.Equal(got, want) || !bytes.Equal(list.at(cur, len(want)), want) {
					t.Fatalf("%d of %+v:\n got %x\n and %x\nwant %x", i, wrs, got, list.at(cur, len(want)), want)
				}
				head++
				if note := batch.sq.notes[cur&batch.sq.mask]; note.wrID != wrs[i].WRID || note.end != head {
					t.Fatalf("%d of %+v is noted as %+v, want the end %d", i, wrs, note, head)
				}
				cur += uint32(len(want)+blockSize-1) / blockSize
			}
			if batch.sq.cur != cur || batch.sq.head != head || list.sq.cur != cur || *list.record.words != *batch.record.words {
				t.Fatalf("%+v: at %d and %d, want %d", wrs, batch.sq.cur, list.sq.cur, cur)
			}
			if e.next(3) > 0 {
				list.complete()
				batch.complete()
			}
		}
	})
}
