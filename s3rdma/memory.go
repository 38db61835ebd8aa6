package s3rdma

import (
	"math/bits"
	"sync"
)

const (
	smallestBuffer = 1 << 12
	// mostIdle limits the memory of buffers that no request uses.
	mostIdle = 64 << 20
)

// memory is what the requests of a client use, up to a limit.
type memory struct {
	mu    sync.Mutex
	used  int64
	idle  int64
	spare [27][][]byte // by the logarithm of the size
}

func classOf(n int) int { return bits.Len(uint(max(n, smallestBuffer) - 1)) }

// take returns n bytes, or nil if more than limit would be in use.
func (m *memory) take(n int, limit int64) []byte {
	class := classOf(n)
	size := int64(1) << class
	if class >= len(m.spare) { // of which none are kept
		size = int64(n)
	}
	b, ok := m.reserve(class, size, limit)
	if ok && b == nil {
		b = make([]byte, size) // without the lock: it clears the memory
	}
	if !ok {
		return nil
	}
	return b[:n]
}

// reserve counts the memory, and returns what is kept of that size.
func (m *memory) reserve(class int, size, limit int64) (b []byte, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if size > limit-m.used {
		return nil, false
	}
	m.used += size
	if class >= len(m.spare) || len(m.spare[class]) == 0 {
		return nil, true
	}
	s := m.spare[class]
	m.spare[class] = s[:len(s)-1]
	m.idle -= size
	return s[len(s)-1][:size], true
}

// put takes back what take returned. If lost is set, a device may still use it: it is left to the garbage collector,
// which knows the device's use.
func (m *memory) put(b []byte, lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	size := int64(cap(b))
	m.used -= size
	if class := classOf(int(size)); !lost && class < len(m.spare) && m.idle+size <= mostIdle {
		m.idle += size
		m.spare[class] = append(m.spare[class], b[:0])
	}
}
