package mlx5

import (
	"fmt"
	"unsafe"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/uverbs"
)

// newContext is uverbs' own: it makes a Context on a kernel in memory, which no
// program needs.
//
//go:linkname newContext github.com/goverbs/goverbs/uverbs.newContext
func newContext(dev *ioctl.Device, device uverbs.Device, p uverbs.Provider) (*uverbs.Context, error)

// importedContext is uverbs' own too.
//
//go:linkname importedContext github.com/goverbs/goverbs/uverbs.importContext
func importedContext(dev *ioctl.Device, device uverbs.Device, p uverbs.Provider) (*uverbs.Context, error)

// A span is memory of this process that the device may use.
type span struct{ addr, n uint64 }

// View implements engine.Memory: the device's addresses are this process's, in
// the spans that the kernel was told of.
func (s *soft) View(addr uint64, n int) ([]byte, error) {
	s.spansMu.RLock() // the engine's receivers are goroutines of their own
	defer s.spansMu.RUnlock()
	for _, m := range s.spans {
		if off := addr - m.addr; off <= m.n && uint64(n) <= m.n-off {
			// The kernel is told of addresses as numbers, so this is where one
			// becomes memory again. It is none of Go's.
			at := uintptr(addr)
			return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n), nil
		}
	}
	return nil, fmt.Errorf("no memory at %#x", addr)
}
