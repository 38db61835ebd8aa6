package mlx5

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// TestRawWQEFence checks that a WQE of the program after a change of memory keys has the fence that the next request
// needs, and that the request after it has none.
func TestRawWQEFence(t *testing.T) {
	b := newBench(t, uverbs.QPConfig{MaxSendWR: 8, MaxSendSGE: 1}, nil)
	nop := make([]byte, segmentSize)
	binary.BigEndian.PutUint32(nop[ctrlQPN:], benchQPN<<8|1)
	b.Begin()
	b.Op(uverbs.OpLocalInv, 0, 1, 0, 0, 0x100)
	first := 0
	for i, want := range []uint8{ceSmallFence, 0} {
		b.RawWQE(uint64(i), nop)
		if i == 0 {
			first = int(b.sq.cur) - 1
		}
		if got := b.sq.bytes[(first+i)*blockSize+ctrlFlags]; got != want {
			t.Errorf("WQE %d has the flags %#x, want %#x", i, got, want)
		}
	}
	check(t, b.Submit())
}
