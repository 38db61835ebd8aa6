package rxe

import (
	"fmt"
	"math/bits"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/internal/uapi"
	"github.com/goverbs/goverbs/uverbs"
)

// srq implements driver.SRQ. Its ring has the format of a receive queue.
type srq struct {
	recvQueue
	ctx       *deviceContext
	maxSGE    int   // as returned by the kernel
	lost      error // of a resize whose new ring could not be mapped
	lostCount int   // number of receives in the lost ring

	// offer is where the kernel writes the offer of the new ring when it resizes the
	// queue. The command contains its address, so an srq must be on the heap.
	offer uapi.Mminfo
}

func newSharedQueue(ctx *deviceContext, r ring, maxSGE int) *srq {
	return &srq{recvQueue: newRecvQueue(r, maxSGE), ctx: ctx, maxSGE: maxSGE}
}

// PostRecv implements driver.SRQ. It makes no system call, like PostRecv of
// a QP.
func (s *srq) PostRecv(wrs []uverbs.RecvWR) (int, error) {
	if s.lost != nil {
		return 0, s.lost
	}
	n, err := s.post(wrs)
	runtime.KeepAlive(s)
	return n, err
}

// Modify implements driver.SRQ.
//
// To resize, the kernel creates another ring, copies the receives that it has not
// used to its beginning, and continues there. The command always contains the
// address of the offer, even if it is not used.
//
// Modify does not issue a command with a size that is too small for the posted
// receives. Some kernels, such as Linux 6.1.176, free the ring if they cannot
// resize it, and crash when the queue is used next.
func (s *srq) Modify(maxWR int, modify driver.Command) error {
	waiting := s.count()
	if maxWR > 0 && waiting > capacity(maxWR) {
		return &uverbs.Error{Op: "modify", Kind: uverbs.ErrInvalid, Errno: unix.EINVAL,
			Detail: fmt.Sprintf("MaxWR is %d, too small for the %d receives that are posted", maxWR, waiting)}
	}
	s.offer = uapi.Mminfo{}
	_, err := modify(s.offerAddr(), nil)
	runtime.KeepAlive(s)
	if err != nil || maxWR == 0 {
		return err
	}
	r, err := s.ctx.mapRing(new(provider.Mapping), "resized shared receive queue", s.offer, recvHeader)
	old := s.ring
	if err != nil {
		s.lost, s.lostCount = err, waiting
	} else {
		s.lost = nil
		s.recvQueue = newRecvQueue(r, s.maxSGE)
	}
	return provider.Join(err, old.retire(true))
}

// count returns the maximum number of receives that the kernel has not used.
func (s *srq) count() int {
	if s.lost != nil {
		return s.lostCount
	}
	return int((s.cur - s.cons.Load()) & s.mask)
}

// capacity returns how many receives the kernel allocates for n: a power of two, of
// which one slot is not used.
func capacity(n int) int { return 1<<bits.Len(uint(n)) - 1 }

// Retire implements driver.SRQ.
func (s *srq) Retire() error { return s.retire(true) }
