package fakemlx5

import (
	"encoding/binary"
	"fmt"
	"sync"
	"unsafe"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

const pageSize = 4096

// memory is the memory that an adapter may use. Its addresses are those of this process, or of the space of another
// one.
type memory struct {
	mu    sync.RWMutex
	pages map[uint64]int // how many times each page has been shared, by number
	other spaces
}

// share permits the adapter to use n bytes. unshare revokes that.
func (m *memory) share(addr, n uint64)   { m.count(addr, n, 1) }
func (m *memory) unshare(addr, n uint64) { m.count(addr, n, -1) }

func (m *memory) count(addr, n uint64, change int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pages == nil {
		m.pages = map[uint64]int{}
	}
	for p := addr / pageSize; p*pageSize < addr+n; p++ {
		if m.pages[p] += change; m.pages[p] == 0 {
			delete(m.pages, p)
		}
	}
}

// View implements engine.Memory.
func (m *memory) View(addr uint64, n int) ([]byte, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for p := addr / pageSize; p*pageSize < addr+uint64(n); p++ {
		if m.pages[p] == 0 {
			return nil, fmt.Errorf("no memory at %#x", p*pageSize)
		}
	}
	if addr >= 1<<spaceShift {
		return m.other.view(addr, n)
	}
	// Commands contain addresses as numbers, so a number must be converted to a pointer here. The
	// owner of the memory keeps it alive until it has destroyed the object.
	at := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n), nil
}

// addressOf returns the address of memory that does not move.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// pagesOf returns a buffer of the device whose pages are at the addresses of this process.
func pagesOf(addr, n uint64) engine.Buffer {
	b := engine.Buffer{PageShift: 12, Offset: addr % pageSize}
	for p := addr &^ (pageSize - 1); p < addr+n; p += pageSize {
		b.Pages = append(b.Pages, p)
	}
	return b
}

// translations returns the list of a key's pages as the device reads it: present and writable.
func translations(b engine.Buffer) (list []byte) {
	for _, p := range b.Pages {
		list = binary.BigEndian.AppendUint64(list, p|3)
	}
	return list
}
