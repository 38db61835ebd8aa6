package rxe

import (
	"errors"
	"fmt"
	"math/bits"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// srq implements uverbs.ProviderSRQ. Its ring is that of a receive queue.
type srq struct {
	recvQueue
	ctx    *deviceContext
	maxSGE int   // as the kernel has it
	lost   error // the ring could not be mapped after a resize
	held   int   // how many receives were in it

	// offer is where the kernel writes about the new ring when it resizes the
	// queue, by an address in the command. So an srq lies on the heap.
	offer uapi.Mminfo
}

func newSharedQueue(ctx *deviceContext, r ring, maxSGE int) *srq {
	return &srq{recvQueue: newRecvQueue(r, maxSGE), ctx: ctx, maxSGE: maxSGE}
}

// PostRecv implements uverbs.ProviderSRQ. As with a QP's own receives, it makes
// no system call.
func (s *srq) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	if s.lost != nil {
		return 0, s.lost
	}
	n, err := s.post(wrs)
	runtime.KeepAlive(s)
	return n, err
}

// Modify implements uverbs.ProviderSRQ.
//
// To resize, the kernel makes another ring, copies the receives that it has not
// taken to its beginning, and takes them from there. The command has the address
// of the answer for every change, used or not.
//
// A size that is too small for what is posted never gets there. Linux 6.1.176,
// for one, frees the ring when it cannot resize it, and crashes at the next use
// of the queue.
func (s *srq) Modify(a *uverbs.SRQAttr, m uverbs.SRQMask, modify uverbs.ProviderCommand) error {
	waiting := s.count()
	if m&uverbs.SRQMaskMaxWR != 0 && waiting > capacity(a.MaxWR) {
		return &uverbs.Error{Op: "modify", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
			Detail: fmt.Sprintf("MaxWR is %d, too small for the %d receives that are posted", a.MaxWR, waiting)}
	}
	s.offer = uapi.Mminfo{}
	_, err := modify(s.offerAddr(), nil)
	runtime.KeepAlive(s)
	if err != nil || m&uverbs.SRQMaskMaxWR == 0 {
		return err
	}
	r, err := s.ctx.mapRing("resized shared receive queue", s.offer, recvHeader)
	old := s.ring
	if err != nil {
		s.lost, s.held = err, waiting
	} else {
		s.lost = nil
		s.recvQueue = newRecvQueue(r, s.maxSGE)
	}
	return errors.Join(err, old.retire())
}

// count is how many receives the kernel has not taken, at most.
func (s *srq) count() int {
	if s.lost != nil {
		return s.held
	}
	return int((s.cur - s.cons.Load()) & s.mask)
}

// capacity is what the kernel makes of a size: all slots but one of a power of
// two.
func capacity(n int) int { return 1<<bits.Len(uint(n)) - 1 }

// Retire implements uverbs.ProviderSRQ.
func (s *srq) Retire() error { return s.retire() }
