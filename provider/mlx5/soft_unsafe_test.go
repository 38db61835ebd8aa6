package mlx5

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// newContext is uverbs.newContext. It creates a Context on a fake kernel, which the public API cannot do.
//
//go:linkname newContext github.com/goverbs/goverbs/uverbs.newContext
func newContext(dev *ioctl.Device, device uverbs.Device, p provider.Provider) (*uverbs.Context, error)

// importedContext is uverbs.importContext.
//
//go:linkname importedContext github.com/goverbs/goverbs/uverbs.importContext
func importedContext(dev *ioctl.Device, device uverbs.Device, p provider.Provider) (*uverbs.Context, error)

// implOf returns the provider's part of an SRQ.
func implOf(s *uverbs.SRQ) *srq {
	f := reflect.ValueOf(s).Elem().FieldByName("impl")
	return (*(*provider.SRQ)(f.Addr().UnsafePointer())).(*srq)
}

// A span is memory of this process that the device may use.
type span struct{ addr, n uint64 }

// View implements engine.Memory. The device's addresses are those of this process, within the
// spans that were registered with the kernel.
func (s *soft) View(addr uint64, n int) ([]byte, error) {
	s.spansMu.RLock() // the engine's receivers run in separate goroutines
	defer s.spansMu.RUnlock()
	for _, m := range s.spans {
		if off := addr - m.addr; off <= m.n && uint64(n) <= m.n-off {
			// The kernel receives addresses as numbers, so a number must be converted to a pointer here. It does not
			// point to Go memory.
			at := uintptr(addr)
			return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n), nil
		}
	}
	return nil, fmt.Errorf("no memory at %#x", addr)
}

// offsetIn returns the offset of a register in b.
func offsetIn(b []byte, reg *uint64) int {
	return int(uintptr(unsafe.Pointer(reg)) - uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
