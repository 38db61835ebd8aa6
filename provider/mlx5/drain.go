package mlx5

import (
	"runtime"
	"sync/atomic"
)

// Unpolled implements driver.Unpolled. The completion of a send also completes the sends
// before it.
func (q *cq) Unpolled(of any) (sends, recvs int) {
	g := queuesOf(of)
	if g == nil {
		return 0, 0
	}
	t := &g.target
	for i := q.ci; i-q.ci <= q.mask; i++ {
		v, ok := q.mine(i)
		if !ok {
			break
		}
		at := uint32(v>>16) & 0xffff & t.sendMask
		switch e := q.at(i); {
		case !q.about(e, v, t):
		case !arrival(v) && int(at) < len(t.sends):
			sends = int(t.sends[at].end - atomic.LoadUint32(t.sendTail))
		case arrival(v) && t.srq == nil:
			recvs++
		}
	}
	runtime.KeepAlive(of)
	return sends, recvs
}

// Unfinished implements driver.Finisher. The device reports nothing about an unsignaled request
// that succeeded.
func (q *qp) Unfinished() bool {
	s := &q.sq
	unfinished := s.outstanding() > 0 && be(s.blocks[s.last&s.mask][1])>>32&ceSignaled == 0
	runtime.KeepAlive(q)
	return unfinished
}

// FinishSends implements driver.Finisher: it posts a signaled NOP.
func (q *qp) FinishSends() bool {
	s := &q.sq
	if s.overflow() {
		return false
	}
	i := s.cur & s.mask
	b := &s.blocks[i]
	b[0] = be(uint64(s.cur&0xffff)<<40 | hwNop<<32 | s.qpn | ctrlSegments)
	b[1] = be(ceSignaled << 32)
	s.head++
	s.notes[i] = sendNote{end: s.head, meta: metaSilent}
	s.last = s.cur
	s.cur++
	s.setLimit()
	s.postSendDB(0)
	runtime.KeepAlive(q)
	return true
}
