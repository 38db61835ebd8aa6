package s3rdma

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// A mover is what the server needs for a transfer: a DCI and a registered buffer, which no peer can reach.
type mover struct {
	pd *uverbs.PD
	cq *uverbs.CQ
	qp *uverbs.QP
	mr *uverbs.MR
}

func newMover(d *Device, size int) (*mover, error) {
	m := &mover{}
	err := m.create(d, size)
	if err != nil {
		return nil, errors.Join(err, m.close())
	}
	return m, nil
}

func (m *mover) create(d *Device, size int) (err error) {
	if m.pd, err = d.ctx.AllocPD(); err != nil {
		return err
	}
	if m.mr, err = m.pd.Alloc(size, uverbs.LocalWrite); err != nil {
		return err
	}
	if m.cq, err = d.ctx.CreateCQ(uverbs.CQConfig{Entries: 1}); err != nil {
		return err
	}
	if m.qp, err = m.pd.CreateQP(uverbs.QPConfig{Type: uverbs.DCI, SendCQ: m.cq, MaxSendWR: 1}); err != nil {
		return err
	}
	return m.qp.Ready()
}

// close ends the device's use of the buffer.
func (m *mover) close() error {
	return errors.Join(closeOne(m.qp), closeOne(m.cq), closeOne(m.mr), closeOne(m.pd))
}

// move posts a request and waits until it has completed. After an error, the buffer is in use until close.
func move(ctx context.Context, qp *uverbs.QP, cq *uverbs.CQ, wr uverbs.SendWR) error {
	if _, err := qp.PostSend(wr); err != nil {
		return err
	}
	var wc [1]uverbs.WC
	if _, err := cq.PollWait(ctx, wc[:]); err != nil {
		return err
	}
	return wc[0].Err()
}

// movers are the movers of a Handler.
type movers struct {
	mu     sync.Mutex
	slots  chan struct{} // one per transfer in progress
	idle   []*mover
	closed bool
}

// open creates the slots.
func (s *movers) open(h *Handler) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if s.slots == nil {
		s.slots = make(chan struct{}, h.maxTransfers())
	}
	return nil
}

// enter waits for a slot.
func (s *movers) enter(ctx context.Context, wait time.Duration) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: %d are in progress, and none has ended for %v: raise Handler.MaxTransfers", ErrBusy,
			cap(s.slots), wait)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// take returns a mover for one transfer.
func (s *movers) take(ctx context.Context, h *Handler) (*mover, error) {
	if err := s.open(h); err != nil {
		return nil, err
	}
	if err := s.enter(ctx, positiveOr(h.MaxWait, defaultWait)); err != nil {
		return nil, err
	}
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		m := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		return m, nil
	}
	s.mu.Unlock()
	m, err := newMover(h.Device, min(positiveOr(h.BufferSize, defaultBuffer), uverbs.MaxMessage))
	if err != nil {
		<-s.slots
	}
	return m, err
}

// put ends the use of a mover, which is closed if its transfer has failed.
func (s *movers) put(m *mover, failed bool) error {
	defer func() { <-s.slots }()
	s.mu.Lock()
	keep := !failed && !s.closed
	if keep {
		s.idle = append(s.idle, m)
	}
	s.mu.Unlock()
	if keep {
		return nil
	}
	return m.close()
}

// close closes the movers. No transfer may be in progress.
func (s *movers) close() (err error) {
	s.mu.Lock()
	idle := s.idle
	s.idle, s.closed = nil, true
	s.mu.Unlock()
	for _, m := range idle {
		err = errors.Join(err, m.close())
	}
	return err
}

// A transfer is a request with a token in progress at the server.
type transfer struct {
	h     *Handler
	r     *http.Request
	token Token
	m     *mover // nil before the first data
	ah    *uverbs.AH
	done  uint32        // bytes moved
	spent time.Duration // by the device
	err   error         // of a move
}

// begin takes what the transfer needs. After an error it may be called again.
func (x *transfer) begin() (err error) {
	if x.m != nil {
		return nil
	}
	m, err := x.h.movers.take(x.r.Context(), x.h)
	if err != nil {
		return err
	}
	attr, err := m.qp.AHAttr(x.token.endpoint())
	if err == nil {
		x.ah, err = m.pd.CreateAH(attr)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%w: no path to the client: %w", ErrTransfer, err), x.h.movers.put(m, false))
	}
	x.m = m
	return nil
}

// move moves n bytes between the buffer and the next n bytes of the client's memory.
func (x *transfer) move(op uverbs.Opcode, n int) error {
	if x.err != nil {
		return x.err
	}
	if left := x.token.Size - x.done; n > int(left) { // the client's memory has no room: never the device's concern
		return fmt.Errorf("%w: %d bytes, the client's memory has room for %d", ErrTooLarge, n, left)
	}
	limit := fmt.Errorf("%w: more than %v: see Handler.Timeout", ErrTimeout, x.h.timeout())
	ctx, cancel := context.WithTimeoutCause(x.r.Context(), x.h.timeout()-x.spent, limit)
	defer cancel()
	start := time.Now()
	err := move(ctx, x.m.qp, x.m.cq, uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{x.m.mr.SGE(0, n)}, RemoteAddr: x.token.Addr + uint64(x.done), RKey: x.token.RKey,
		AH: x.ah, QPN: x.token.DCTN, DCKey: cmp.Or(x.h.DCKey, defaultDCKey)})
	x.spent += time.Since(start)
	if err != nil {
		x.err = fmt.Errorf("%w: %v of %d bytes at offset %d: %w", ErrTransfer, op, n, x.done, err)
		return x.err
	}
	x.done += uint32(n)
	return nil
}

// receive reads the next part of the client's memory. The result is valid until the next call.
func (x *transfer) receive() ([]byte, error) {
	if err := x.begin(); err != nil {
		return nil, err
	}
	n := min(int64(x.token.Size-x.done), int64(x.m.mr.Len()))
	if err := x.move(uverbs.OpRead, int(n)); err != nil {
		return nil, err
	}
	return x.m.mr.Bytes()[:n], nil
}

// end releases what the transfer has.
func (x *transfer) end() {
	if x.m == nil {
		return
	}
	err := x.ah.Close()
	err = errors.Join(err, x.h.movers.put(x.m, x.err != nil))
	x.m = nil
	if err != nil {
		x.h.observe(x.r, 0, err)
	}
}
