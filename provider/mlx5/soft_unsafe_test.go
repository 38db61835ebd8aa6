package mlx5

import (
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
	return unwatched(*(*provider.SRQ)(f.Addr().UnsafePointer())).(*srq)
}

// offsetIn returns the offset of a register in b.
func offsetIn(b []byte, reg *uint64) int {
	return int(uintptr(unsafe.Pointer(reg)) - uintptr(unsafe.Pointer(unsafe.SliceData(b))))
}
