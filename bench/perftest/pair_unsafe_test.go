package perftest

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// newContext is uverbs.newContext, which creates a Context on a fake kernel. Programs
// do not need it.
//
//go:linkname newContext github.com/goverbs/goverbs/uverbs.newContext
func newContext(dev *ioctl.Device, device uverbs.Device, p provider.Provider) (*uverbs.Context, error)

// bytesAt returns registered memory. The fake kernel knows addresses as numbers. The
// memory is not on the Go heap.
func bytesAt(addr uint64, n int) []byte {
	at := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}
