package perftest

import (
	"unsafe"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/uverbs"
)

// newContext is uverbs' own: it makes a Context on a kernel in memory, which no
// program needs.
//
//go:linkname newContext github.com/goverbs/goverbs/uverbs.newContext
func newContext(dev *ioctl.Device, device uverbs.Device, p uverbs.Provider) (*uverbs.Context, error)

// bytesAt is memory that was registered. The kernel is told of addresses as
// numbers, so this is where one becomes memory again. It is not one of Go's.
func bytesAt(addr uint64, n int) []byte {
	at := uintptr(addr)
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))), n)
}
