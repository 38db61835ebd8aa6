package uverbs

import (
	"math"
	"slices"
	"testing"
)

// TestIDTable checks that queues are found by their ids, and not by others.
func TestIDTable(t *testing.T) {
	for _, base := range []uint64{0, 1<<62 | 7<<32} {
		ids := idTable{base: base}
		a, b, c := new(CQ), new(CQ), new(CQ)
		first, second := ids.add(a), ids.add(b)
		if ids.get(first) != queue(a) || ids.get(second) != queue(b) || ids.count() != 2 {
			t.Errorf("ids %#x and %#x name %v and %v", first, second, ids.get(first), ids.get(second))
		}
		ids.remove(first)
		ids.remove(first)
		third := ids.add(c)
		if uint32(third) != uint32(first) || third == first {
			t.Errorf("ids %#x and %#x: want the same slot, and another id", first, third)
		}
		for _, id := range []uint64{0, first, base, second + 1, third + nextID, math.MaxUint64} {
			if q := ids.get(id); q != nil {
				t.Errorf("id %#x names %v", id, q)
			}
			ids.remove(id)
		}
		if all := slices.Collect(ids.all); !slices.Equal(all, []queue{c, b}) {
			t.Errorf("the table has %v", all)
		}
	}
}

// TestIDTableExhausted checks that a slot whose ids have all been used is not used again.
func TestIDTableExhausted(t *testing.T) {
	ids := idTable{base: math.MaxUint32 << 32}
	last := ids.add(new(CQ))
	ids.remove(last)
	if next := ids.add(new(CQ)); uint32(next) == uint32(last) {
		t.Errorf("id %#x after %#x", next, last)
	}
}
