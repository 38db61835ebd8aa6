package rxe

import (
	"sync/atomic"
	"unsafe"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// This file converts element numbers to pointers. newRing checks what makes this
// safe: data contains mask+1 elements, each of at least the required size. The
// mapping is page aligned and the elements begin at a multiple of 128, so every
// field is aligned.

const (
	sendHeader = int(unsafe.Sizeof(uapi.RxeSendWqe{}))
	recvHeader = int(unsafe.Sizeof(uapi.RxeRecvWqe{}))
	sgeSize    = int(unsafe.Sizeof(uapi.RxeSge{}))
	cqeSize    = int(unsafe.Sizeof(uapi.IbUverbsWc{}))
)

func load32(b []byte, off int) uint32 { return *(*uint32)(unsafe.Pointer(&b[off])) }

func index(b []byte, off int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&b[off]))
}

// element returns the address of element i.
func (r *ring) element(i uint32) unsafe.Pointer {
	return unsafe.Pointer(&r.data[int(i&r.mask)<<(r.shift&31)])
}

func (r *ring) cqe(i uint32) *uapi.IbUverbsWc { return (*uapi.IbUverbsWc)(r.element(i)) }

func (r *ring) sendWQE(i uint32) *sendWQE { return (*sendWQE)(r.element(i)) }

func (r *ring) recvWQE(i uint32) *recvWQE { return (*recvWQE)(r.element(i)) }

// sges returns the n scatter/gather elements after the fixed part of w. They must
// fit in an element of the ring, which the maxSGE of the queue ensures.
func (w *sendWQE) sges(n int) []uverbs.SGE {
	return unsafe.Slice((*uverbs.SGE)(unsafe.Add(unsafe.Pointer(w), sendHeader)), n)
}

// inline returns the n bytes after the fixed part of w. They must fit in an element
// of the ring.
func (w *sendWQE) inline(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(w), sendHeader)), n)
}

func (w *recvWQE) sges(n int) []uverbs.SGE {
	return unsafe.Slice((*uverbs.SGE)(unsafe.Add(unsafe.Pointer(w), recvHeader)), n)
}
