package rdma

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/goverbs/goverbs/internal/race"
)

// TestHeap checks that receives and long messages are not on the Go heap.
func TestHeap(t *testing.T) {
	if race.Enabled {
		t.Skip("with the race detector, the memory is on the Go heap")
	}
	heap := func() int64 {
		runtime.GC()
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int64(s.HeapAlloc)
	}
	before := heap()
	clients, _, _ := honestConns(t, 1, &Options{Depth: 64, EagerSize: 1 << 20}, nil)
	b, err := clients[0].Alloc(64 << 20)
	good(t, b, err)
	if more := heap() - before; more > 16<<20 {
		t.Errorf("the heap has %d bytes more with 128 MiB of registered memory", more)
	}
	b.Release()
}

// TestMemoryAfterClose checks that messages and buffers which the program has not released keep their bytes after Close
// of the connections of the device, also when others are established, that slices of them can be read after Release,
// and that their memory is free then.
func TestMemoryAfterClose(t *testing.T) {
	ctx := bounded(t)
	var owned []Message
	var stale [][]byte
	for range 4 {
		clients, servers, _ := honestConns(t, 1, &Options{Linger: -1}, nil)
		c, s := clients[0], servers[0]
		for _, n := range []int{1000, 100_000} {
			if err := c.Send(ctx, bytes.Repeat([]byte{1}, n)); err != nil {
				t.Fatal(err)
			}
			m, err := s.Recv(ctx)
			owned = append(owned, good(t, m, err))
			stale = append(stale, m.Bytes())
		}
		b, err := s.Alloc(300_000)
		copy(good(t, b, err).Bytes(), bytes.Repeat([]byte{1}, b.Len()))
		owned = append(owned, Message{Buffer: b, n: b.Len()})
		stale = append(stale, b.Bytes())
		receives := s.slabs[0]
		for _, end := range []*Conn{c, s} {
			mayLose(t, end.Close())
		}
		if receives.used != 1 {
			t.Errorf("%d users of the receives, of which one was not released", receives.used)
		}
	}
	for _, m := range owned {
		if b := m.Bytes(); len(b) != m.Len() || bytes.Count(b, []byte{1}) != len(b) {
			t.Errorf("a message of %d bytes has lost them", m.Len())
		}
	}
	for _, m := range owned {
		m.Buffer.Release()
	}
	for _, b := range stale {
		_ = bytes.Count(b, []byte{1})
	}
	for _, m := range owned {
		if s := m.Buffer.m.slab; s.used != 0 {
			t.Errorf("%d users of memory that was released", s.used)
		}
	}
}
