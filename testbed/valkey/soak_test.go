//go:build vm && soak && !device

package valkey_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/valkey-io/valkey-go"
)

// TestSoakLargest stores the largest value that the server accepts.
func TestSoakLargest(t *testing.T) {
	values(t, start(t).dial(), 512<<20)
}

// TestSoakLoad writes and reads values of 1 MiB and 64 MiB for ten minutes, about as many bytes of both. A call that
// takes minutes is a hang.
func TestSoakLoad(t *testing.T) {
	const clients, hang = 8, 2 * time.Minute
	r := start(t)
	end := time.Now().Add(10 * time.Minute)
	var all sync.WaitGroup
	var small, large, slowest atomic.Int64
	for i := range clients {
		c := r.dial(func(o *valkey.ClientOption) { o.DisableRetry = true }) // which would hide a connection that is lost
		all.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				size, count := 1<<20, &small
				if rand.IntN(64) == 0 {
					size, count = 64<<20, &large
				}
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), hang)
				roundTrip(ctx, t, c, strconv.Itoa(i), size)
				cancel()
				count.Add(1)
				maxOf(&slowest, int64(time.Since(began)))
			}
		})
	}
	all.Wait()
	t.Logf("%d values of 1 MiB and %d of 64 MiB were written and read; the slowest in %v", small.Load(), large.Load(),
		time.Duration(slowest.Load()))
	if small.Load() == 0 || large.Load() == 0 {
		t.Error("values of a size were not tried")
	}
}

// roundTrip writes a value and reads it.
func roundTrip(ctx context.Context, t *testing.T, c valkey.Client, key string, size int) {
	want := make([]byte, size)
	for seed, i := rand.Uint64(), 0; i < size; i += 8 { // no two words are the same
		binary.LittleEndian.PutUint64(want[i:], seed+uint64(i))
	}
	if err := c.Do(ctx, c.B().Set().Key(key).Value(valkey.BinaryString(want)).Build()).Error(); err != nil {
		t.Errorf("SET of %d bytes: %v", size, err)
		return
	}
	got, err := c.Do(ctx, c.B().Get().Key(key).Build()).AsBytes()
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("GET of %d bytes: %d, %v", size, len(got), err)
	}
}

// maxOf sets a number to v if that is more.
func maxOf(n *atomic.Int64, v int64) {
	for old := n.Load(); v > old && !n.CompareAndSwap(old, v); old = n.Load() {
	}
}
