package mlx5

import (
	"runtime"

	"github.com/goverbs/goverbs/internal/provider"
	"github.com/goverbs/goverbs/uverbs"
)

// An encoder encodes the requests of the fast path: see send_fast_unsafe.go.
type encoder interface {
	encodeSGEs(wrs []uverbs.SendWR) int
	encodeInlines(wrs []uverbs.SendWR) int
}

// encoded ends a loop of the fast path that has encoded n requests, each in the same number of blocks.
func (s *sendQueue) encoded(n int, cur, head, blocks uint32) int {
	if n > 0 {
		s.cur, s.head, s.last = cur, head, cur-blocks
	}
	return n
}

// postList posts a list of any requests.
//
//go:noinline
func (s *sendQueue) postList(q encoder, wrs []uverbs.SendWR) (int, error) {
	var err error
	n, first := 0, s.cur
	s.request.state = requestClosed
	s.setLimit()
	for n < len(wrs) && err == nil {
		wr, more, state := &wrs[n], 0, requestClosed
		switch {
		case s.words[wr.Opcode&opMask]&wordSlow != 0:
		case len(wr.Inline) > 0:
			more, state = q.encodeInlines(wrs[n:]), requestInlined
		default:
			more = q.encodeSGEs(wrs[n:])
		}
		if more > 0 {
			s.request.state = state
		} else if err = s.encodeAny(wr); err == nil {
			more = 1
		}
		n += more
	}
	if s.cur != first {
		burst := uint64(0)
		if n == 1 {
			burst = s.burstOf(s.cur-first, s.request.state == requestInlined)
		}
		s.postSendDB(burst)
	}
	runtime.KeepAlive(q)
	return n, err
}

// encodeAny encodes a request of any kind.
func (s *sendQueue) encodeAny(wr *uverbs.SendWR) error {
	s.addAny(wr)
	if !s.close() {
		s.request.state = requestClosed
		s.setLimit()
		return s.request.err
	}
	return nil
}

// addAny begins a request of any kind and adds all that wr names.
func (s *sendQueue) addAny(wr *uverbs.SendWR) {
	imm := wr.Imm
	switch wr.Opcode {
	case uverbs.OpSendInv, uverbs.OpLocalInv:
		imm = wr.InvalidateRKey
	case uverbs.OpTSO:
		imm = uint32(wr.MSS)
	}
	s.start(wr.Opcode, wr.Flags, wr.WRID, wr.RemoteAddr, wr.RKey, imm)
	r := &s.request
	if r.state == requestFailed {
		return
	}
	if r.wantsDest {
		s.destOf(wr)
	}
	switch {
	case r.op&operands != 0:
		s.atomic(wr.CompareAdd, wr.Swap)
	case wr.Opcode == uverbs.OpBindMW:
		if len(wr.SGL) > 0 || len(wr.Inline) > 0 {
			s.fail(uverbs.ErrMalformed)
			return
		}
		s.bind(s.owner.Bind(wr))
	}
	if len(wr.Inline) > 0 {
		if len(wr.SGL) > 0 && s.frames == nil {
			s.fail(uverbs.ErrMalformed)
			return
		}
		s.inline(wr.Inline)
	}
	for i := range wr.SGL {
		s.sge(wr.SGL[i])
	}
}

// destOf sets the destination of a request.
func (s *sendQueue) destOf(wr *uverbs.SendWR) {
	switch s.typ {
	case uverbs.DCI:
		s.dcAddr(provider.AHOf(wr.AH), wr.QPN, wr.DCKey, wr.DCStream)
	case uverbs.UD:
		s.udAddr(provider.AHOf(wr.AH), wr.QPN, wr.QKey)
	default:
		s.remoteSRQ(wr.RemoteSRQN)
	}
}
