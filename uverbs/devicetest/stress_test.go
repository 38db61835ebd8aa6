package devicetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// The stress tests count messages: every message of many goroutines is sent once and arrives
// once, unchanged, while other goroutines make all calls that are allowed concurrently.

const (
	stressSize  = 64 // bytes of a message
	stressEach  = 100
	stressRoom  = 48 // messages in flight: fewer than the queues hold
	stressSlots = 60 // receives posted
)

// A stress is a set of messages in flight, numbered from 0.
type stress struct {
	t       *testing.T
	ctx     context.Context // ends after the last completion, or after a timeout
	end     context.CancelCauseFunc
	wg      sync.WaitGroup
	mr      *uverbs.MR // message n is at n*stressSize
	sent    []atomic.Int32
	got     []atomic.Int32
	left    atomic.Int64 // remaining completions
	credits chan struct{}
}

var errStressDone = errors.New("all have arrived")

func newStress(t *testing.T, ctx context.Context, pd *uverbs.PD, messages int) *stress {
	t.Helper()
	s := &stress{t: t, mr: must(pd.Alloc(messages*stressSize, uverbs.LocalWrite))(t), sent: make([]atomic.Int32, messages),
		got: make([]atomic.Int32, messages), credits: make(chan struct{}, stressRoom)}
	s.left.Store(2 * int64(messages))
	s.ctx, s.end = context.WithCancelCause(ctx)
	for n := range messages {
		m := s.message(n)
		for i := range m {
			m[i] = byte(n*31 + i)
		}
		binary.LittleEndian.PutUint32(m, uint32(n))
	}
	return s
}

func (s *stress) message(n int) []byte { return s.mr.Bytes()[n*stressSize:][:stressSize] }

// post starts a goroutine that posts count messages. address adds the attributes for UD.
func (s *stress) post(qp *uverbs.QP, first, count int, address func(*uverbs.SendWR)) {
	s.wg.Go(func() {
		for n := first; n < first+count; n++ {
			select {
			case s.credits <- struct{}{}:
			case <-s.ctx.Done():
				return
			}
			wr := uverbs.SendWR{WRID: uint64(n), Opcode: uverbs.OpSend, Flags: uverbs.Signaled}
			if address != nil {
				address(&wr)
			}
			if err := s.postOne(qp, n, wr); err != nil {
				s.t.Errorf("posting message %d: %v", n, err)
				s.end(err)
				return
			}
		}
	})
}

// postOne posts a message in one of four ways.
func (s *stress) postOne(qp *uverbs.QP, n int, wr uverbs.SendWR) error {
	if n%2 == 0 {
		wr.SGL = []uverbs.SGE{s.mr.SGE(n*stressSize, 10), s.mr.SGE(n*stressSize+10, stressSize-10)}
	} else {
		wr.Inline = s.message(n)
	}
	if n%4 < 2 {
		_, err := qp.PostSend(wr)
		return err
	}
	b := qp.StartSend()
	b.Send(wr.WRID, wr.Flags)
	if wr.AH != nil {
		b.UDAddr(wr.AH, wr.QPN, wr.QKey)
	}
	for _, sge := range wr.SGL {
		b.SGE(sge)
	}
	if wr.Inline != nil {
		b.Inline(wr.Inline)
	}
	return b.Submit()
}

// take starts a goroutine that waits for completions of a CQ.
func (s *stress) take(cq *uverbs.CQ, each func(wc *uverbs.WC) error) {
	s.wg.Go(func() {
		var wcs [4]uverbs.WC
		for {
			n, err := cq.PollWait(s.ctx, wcs[:])
			if err != nil {
				if context.Cause(s.ctx) == nil {
					s.t.Errorf("PollWait: %v", err)
					s.end(err)
				}
				return
			}
			for i := range wcs[:n] {
				if err := errors.Join(wcs[i].Err(), each(&wcs[i])); err != nil {
					s.t.Errorf("completion %+v: %v", wcs[i], err)
					s.end(err)
					return
				}
			}
			if s.left.Add(int64(-n)) == 0 {
				s.end(errStressDone)
			}
		}
	})
}

func (s *stress) sends(cq *uverbs.CQ) {
	s.take(cq, func(wc *uverbs.WC) error {
		s.sent[wc.WRID].Add(1)
		<-s.credits
		return nil
	})
}

// receives checks the messages that arrive in slots of mr, after header bytes, and posts each
// slot again.
func (s *stress) receives(cq *uverbs.CQ, mr *uverbs.MR, header int, repost func(uverbs.RecvWR) error) {
	s.take(cq, func(wc *uverbs.WC) error {
		stride := header + stressSize
		m := mr.Bytes()[int(wc.WRID)*stride:][header:stride]
		n := int(binary.LittleEndian.Uint32(m))
		if n >= len(s.got) || int(wc.ByteLen) != stride || !bytes.Equal(m, s.message(n)) {
			return errors.New("what arrived is not what was sent")
		}
		s.got[n].Add(1)
		clear(m)
		return repost(slotWR(mr, header, wc.WRID))
	})
}

func slotWR(mr *uverbs.MR, header int, slot uint64) uverbs.RecvWR {
	stride := header + stressSize
	return uverbs.RecvWR{WRID: slot, SGL: []uverbs.SGE{mr.SGE(int(slot)*stride, stride)}}
}

// beside starts a goroutine that calls f, which must succeed, until the traffic ends.
func (s *stress) beside(name string, f func(round int) error) {
	s.wg.Go(func() {
		for round := 0; s.ctx.Err() == nil; round++ {
			if err := f(round); err != nil && s.ctx.Err() == nil {
				s.t.Errorf("%s: %v", name, err)
				return
			}
		}
	})
}

// finish waits for the end and checks the counts.
func (s *stress) finish() {
	s.t.Helper()
	s.wg.Wait()
	if err := context.Cause(s.ctx); err != errStressDone {
		s.t.Fatalf("%d completions are missing: %v", s.left.Load(), err)
	}
	for n := range s.sent {
		if a, b := s.sent[n].Load(), s.got[n].Load(); a != 1 || b != 1 {
			s.t.Errorf("message %d was sent %d times and arrived %d times", n, a, b)
		}
	}
}

// TestDeviceStress uses one QP and two CQs that are resized during the traffic.
func TestDeviceStress(t *testing.T) {
	const posters = 6
	l := newLoop(t, nil)
	s := newStress(t, l.ctx, l.pd, posters*stressEach)
	for slot := range uint64(stressSlots) {
		receive(t, l.b.qp, slotWR(l.b.mr, 0, slot))
	}
	for i := range posters {
		s.post(l.a.qp, i*stressEach, stressEach, nil)
	}
	for range 3 {
		s.sends(l.a.cq)
		s.receives(l.b.cq, l.b.mr, 0, func(wr uverbs.RecvWR) error { return second(l.b.qp.PostRecv(wr)) })
	}
	for name, cq := range map[string]*uverbs.CQ{"resize sends": l.a.cq, "resize receives": l.b.cq} {
		s.beside(name, func(round int) error { return cq.Resize(200 + round%2*300) })
	}
	s.beside("query", func(int) error { return second(l.a.qp.Query(uverbs.MaskState | uverbs.MaskAV)) })
	s.beside("modify", func(round int) error {
		return l.b.qp.Modify(uverbs.QPAttr{MinRNRTimer: uint8(1 + round%12)}, uverbs.MaskMinRNRTimer)
	})
	s.beside("memory", func(int) error {
		mr, err := l.pd.RegMR(make([]byte, 8192), uverbs.LocalWrite)
		if err != nil {
			return err
		}
		return mr.Close()
	})
	s.finish()
}

// TestDeviceStressSRQ uses one SRQ for many QPs. It is refilled whenever its limit is reached,
// and resized.
func TestDeviceStressSRQ(t *testing.T) {
	const pairs = 4
	l, srq := newSharedLoop(t, uverbs.SRQConfig{MaxWR: 100})
	s := newStress(t, l.ctx, l.pd, pairs*2*stressEach)
	for slot := range uint64(stressSlots) {
		provide(t, srq, slotWR(l.b.mr, 0, slot))
	}
	for i := range pairs {
		from := l.a
		if i > 0 {
			from = l.joined(t, srq)
		}
		for k := range 2 {
			s.post(from.qp, (2*i+k)*stressEach, stressEach, nil)
		}
		s.sends(from.cq)
	}
	for range 3 {
		s.receives(l.b.cq, l.b.mr, 0, func(wr uverbs.RecvWR) error { return second(srq.PostRecv(wr)) })
	}
	var events atomic.Int64
	check(t, srq.Modify(uverbs.SRQAttr{Limit: stressSlots}, uverbs.SRQMaskLimit))
	s.beside("limit", func(int) error {
		e, err := l.dev.NextEvent(s.ctx)
		if err != nil {
			return err
		}
		if e.Type != uverbs.EventSRQLimitReached || e.SRQ != srq {
			return errors.New("event " + e.Type.String())
		}
		events.Add(1)
		return srq.Modify(uverbs.SRQAttr{Limit: stressSlots}, uverbs.SRQMaskLimit)
	})
	s.beside("resize", func(round int) error {
		err := srq.Modify(uverbs.SRQAttr{MaxWR: 100 + round%2*100}, uverbs.SRQMaskMaxWR)
		if errors.Is(err, uverbs.ErrNotSupported) { // TestDeviceSRQResize checks where this is expected
			runtime.Gosched()
			err = nil
		}
		return err
	})
	s.finish()
	if events.Load() == 0 {
		t.Error("the limit was never reached")
	}
}

// joined adds a pair of QPs to a shared loop. Messages of the QP that it returns arrive at
// l.b's CQ.
func (l *loop) joined(t *testing.T, srq *uverbs.SRQ) end {
	t.Helper()
	from := l.newEnd(t, nil)
	check(t, from.mr.Close())
	to := must(l.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: l.b.cq, SRQ: srq, MaxSendWR: 1}))(t)
	ea, eb := endpoint(t, from.qp), endpoint(t, to)
	check(t, from.qp.Connect(eb))
	check(t, to.Connect(ea))
	return from
}

// TestDeviceStressUD uses a separate AH for each datagram, and closes it when the datagram has
// been sent. Meanwhile the receiver joins and leaves a multicast group.
func TestDeviceStressUD(t *testing.T) {
	const posters = 4
	pd := must(openDevice(t).AllocPD())(t)
	a, b := newStation(t, pd, uverbs.GIDEntry{}, nil), newStation(t, pd, uverbs.GIDEntry{}, nil)
	check(t, a.mr.Close()) // it sends from s.mr
	s := newStress(t, a.ctx, pd, posters*stressEach)
	again := func(wr uverbs.RecvWR) error { return second(b.qp.PostRecv(wr)) }
	for slot := range uint64(stressSlots) {
		check(t, again(slotWR(b.mr, uverbs.GRHLen, slot)))
	}
	attr := must(a.qp.AHAttr(endpoint(t, b.qp)))(t)
	// The race detector does not know that a completion comes after its post.
	ahs := make([]atomic.Pointer[uverbs.AH], posters*stressEach)
	room := make(chan struct{}, stressSlots) // a datagram without a posted receive is lost
	for i := range posters {
		s.post(a.qp, i*stressEach, stressEach, func(wr *uverbs.SendWR) {
			select {
			case room <- struct{}{}:
			case <-s.ctx.Done():
			}
			ah, err := pd.CreateAH(attr)
			if err != nil {
				t.Errorf("CreateAH: %v", err)
			}
			ahs[wr.WRID].Store(ah)
			wr.AH, wr.QPN, wr.QKey = ah, b.qp.QPN(), qkey
		})
	}
	for range 2 {
		s.take(a.cq, func(wc *uverbs.WC) error {
			s.sent[wc.WRID].Add(1)
			<-s.credits
			return ahs[wc.WRID].Load().Close()
		})
		s.receives(b.cq, b.mr, uverbs.GRHLen, func(wr uverbs.RecvWR) error {
			err := again(wr)
			<-room
			return err
		})
	}
	group := uverbs.GID{10: 0xff, 11: 0xff, 12: 239, 13: 7, 14: 8, 15: 9}
	s.beside("group", func(int) error { return errors.Join(b.qp.AttachMcast(group, 0), b.qp.DetachMcast(group, 0)) })
	s.finish()
}
