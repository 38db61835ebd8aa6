package uverbs

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/noescape"
)

// Drain moves the QP to ERR and waits until all that was posted to it has
// completed, as ib_drain_qp does in the kernel. When it returns nil, what has
// not been polled yet can be, without waiting, and nothing of the QP comes after
// it: buffers may be freed, the QP be closed. What others post meanwhile is
// flushed too, but not waited for.
//
// It works by a last request in each queue, whose completions no Poll shows.
// Whether somebody polls the CQs does not matter: what Drain takes out of them
// in its search stays in order, for Poll. Single-goroutine CQs belong to the
// caller for that time. Receives of an SRQ are not the QP's to drain: those that
// the device had taken for it are in its hands until [EventQPLastWQEReached].
//
// In state RESET there is nothing to wait for, nor when another call moves the
// QP there meanwhile. As Close, it waits for an open
// SendBatch.
//
// The errors: [ErrClosed]; the cause of the end of ctx, with the QP in ERR; what
// the kernel said to MODIFY_QP or to the doorbell.
func (q *QP) Drain(ctx context.Context) error {
	if q.State() == StateReset {
		return q.alive()
	}
	if err := q.Modify(QPAttr{State: StateErr}, MaskState); err != nil {
		return err
	}
	var marks []*mark
	for _, half := range []struct {
		there bool
		cq    *CQ
		post  func(wrID uint64) error
	}{{q.cap.MaxSendWR > 0, q.cfg.SendCQ, q.markSend}, {q.cap.MaxRecvWR > 0 && q.cfg.SRQ == nil, q.cfg.RecvCQ, q.markRecv}} {
		if !half.there {
			continue
		}
		m := &mark{qp: q, cq: half.cq, qpn: q.number, wrID: randomID()}
		if err := m.post(ctx, half.post); err != nil {
			m.cq.forget(m)
			if errors.Is(err, ErrState) && q.State() == StateReset {
				return nil
			}
			return err
		}
		marks = append(marks, m)
	}
	for _, m := range marks {
		if err := m.wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (q *QP) alive() error {
	if q.sendGate.Load() == gateClosed {
		return ErrClosed
	}
	return nil
}

// gave tells whether the QP has given up its requests without completion: it was
// closed, or moved to RESET.
func (q *QP) gave() (bool, error) {
	if err := q.alive(); err != nil {
		return true, err
	}
	return q.State() == StateReset, nil
}

func (q *QP) markSend(wrID uint64) error {
	if !q.single {
		q.sq.Lock()
		defer q.sq.Unlock()
	}
	if g := q.sendGate.Load(); g != gateOpen {
		return gateErrors[g]
	}
	return q.orClosed(&q.sendGate, q.impl.PostFlushed(wrID))
}

func (q *QP) markRecv(wrID uint64) error {
	_, err := q.PostRecv(RecvWR{WRID: wrID})
	return err
}

// randomID is a WRID that no program uses.
func randomID() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: see crypto/rand
	return binary.NativeEndian.Uint64(b[:])
}

// A mark is the last request of a queue that is being drained.
type mark struct {
	qp   *QP
	cq   *CQ
	qpn  uint32
	wrID uint64
	seen bool // under the CQ's lock
}

// post posts the mark as soon as the queue has room.
func (m *mark) post(ctx context.Context, post func(wrID uint64) error) error {
	if err := m.cq.expect(m); err != nil {
		return err
	}
	return m.poll(ctx, func() (bool, error) {
		err := post(m.wrID)
		if errors.Is(err, ErrQueueFull) {
			return false, nil
		}
		return true, err
	})
}

func (m *mark) wait(ctx context.Context) error {
	return m.poll(ctx, func() (bool, error) { return m.cq.passed(m) })
}

// poll calls done until it is, and empties the CQ meanwhile.
func (m *mark) poll(ctx context.Context, done func() (bool, error)) error {
	const first, longest = 20 * time.Microsecond, time.Millisecond
	timer := time.NewTimer(first)
	defer timer.Stop()
	for pause := first; ; pause = min(2*pause, longest) {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := m.cq.keep(); err != nil {
			return err
		}
		if ok, err := done(); ok || err != nil {
			return err
		}
		if gone, err := m.qp.gave(); gone {
			// It may be in the CQ still, and will not come any more.
			kept := m.cq.keep()
			m.cq.forget(m)
			return errors.Join(err, kept)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// kept is what a CQ has while QPs that it serves are being drained: nil at all
// other times, so that Poll looks at nothing else.
type kept struct {
	wcs   []WC // taken out of the queue, and for Poll
	marks []*mark
}

// expect makes the CQ look out for a mark.
func (q *CQ) expect(m *mark) error {
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return ErrClosed
	}
	if q.kept == nil {
		q.kept = new(kept)
	}
	q.kept.marks = append(q.kept.marks, m)
	return nil
}

// forget is for a mark that has not been posted. One that has been is looked out
// for even if nobody waits any more: no Poll may show it.
func (q *CQ) forget(m *mark) {
	q.lock()
	defer q.unlock()
	if q.kept != nil {
		q.kept.marks = slices.DeleteFunc(q.kept.marks, func(o *mark) bool { return o == m })
		q.tidy()
	}
}

func (q *CQ) passed(m *mark) (bool, error) {
	q.lock()
	defer q.unlock()
	if !m.seen && q.dead.Load() {
		return false, ErrClosed
	}
	return m.seen, nil
}

// keep moves what is in the queue to where Poll finds it, but for the marks.
func (q *CQ) keep() error {
	q.lock()
	defer q.unlock()
	if q.dead.Load() {
		return ErrClosed
	}
	if q.kept == nil { // a Poll found the last mark
		return nil
	}
	var wcs [32]WC
	for {
		n, err := q.impl.Poll(noescape.Slice(wcs[:]))
		if err != nil {
			return err
		}
		q.kept.wcs = append(q.kept.wcs, q.kept.sift(wcs[:n])...)
		if n < len(wcs) {
			q.tidy()
			return nil
		}
	}
}

// sift takes the marks out of wcs.
func (k *kept) sift(wcs []WC) []WC {
	return slices.DeleteFunc(wcs, func(wc WC) bool {
		i := slices.IndexFunc(k.marks, func(m *mark) bool { return m.wrID == wc.WRID && m.qpn == wc.QPNum })
		if i < 0 {
			return false
		}
		k.marks[i].seen = true
		k.marks = slices.Delete(k.marks, i, i+1)
		return true
	})
}

// tidy lets Poll take the short way again, once that is right.
func (q *CQ) tidy() {
	if len(q.kept.wcs) == 0 && len(q.kept.marks) == 0 {
		q.kept = nil
	}
}

// poll is Poll with the lock held.
func (q *CQ) poll(wcs []WC) (int, error) {
	if q.kept != nil {
		return q.pollKept(wcs)
	}
	return q.impl.Poll(noescape.Slice(wcs))
}

// pollKept takes what was kept first, and the queue's after it.
func (q *CQ) pollKept(wcs []WC) (int, error) {
	defer q.tidy()
	n := copy(wcs, q.kept.wcs)
	q.kept.wcs = slices.Delete(q.kept.wcs, 0, n)
	if n > 0 || len(wcs) == 0 {
		return n, nil
	}
	n, err := q.impl.Poll(noescape.Slice(wcs))
	return len(q.kept.sift(wcs[:n])), err
}
