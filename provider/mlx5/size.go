package mlx5

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
)

// sizes are those of a QP's queues.
type sizes struct {
	sqBlocks  int // 0: no send queue
	maxSend   int // requests that fit, whatever they are
	maxInline int

	rqCount int // 0: no receive queue
	rqShift int // log2 of a receive's bytes

	split  bool // the send queue begins on a page of its own
	header int  // bytes of a frame that must be in its request
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// sizesOf computes what a configuration needs. A request is as large as the
// largest of the queue can be: a bind, with what the C library counts, so that
// as many fit as there.
func (l *limits) sizesOf(cfg *uverbs.QPConfig) (s sizes, err error) {
	if cfg.Type == uverbs.RawPacket {
		s.split, s.header = true, l.header
	}
	if cfg.MaxSendWR > 0 {
		if err = l.sendSizes(cfg, &s); err != nil {
			return s, err
		}
	}
	if cfg.SRQ == nil && cfg.MaxRecvWR > 0 {
		err = l.recvSizes("create QP", "MaxRecv", cfg.MaxRecvWR, cfg.MaxRecvSGE, &s)
	}
	return s, err
}

func overhead(t uverbs.QPType) int {
	switch t {
	case uverbs.UD:
		return overheadUD
	case uverbs.XRCSend:
		return overheadXRC
	case uverbs.RawPacket:
		return overheadRaw
	}
	return overheadRC
}

// largest is the size of the largest request that is counted with. 6 bits of the
// control segment count its segments, but those of a bind are in the overhead of
// all requests of a connected queue, and no data comes with them.
func (l *limits) largest(t uverbs.QPType) int {
	segments := maxSegments
	if t != uverbs.UD && t != uverbs.RawPacket {
		segments += bindSegments - raddrSegments
	}
	return min(l.sqDesc, segmentSize*segments)
}

func (l *limits) sendSizes(cfg *uverbs.QPConfig, s *sizes) error {
	const op = "create QP"
	head, most := overhead(cfg.Type), l.largest(cfg.Type)
	if limit := (most - head) / segmentSize; cfg.MaxSendSGE > limit {
		return tooLarge(op, "MaxSendSGE", cfg.MaxSendSGE, max(limit, 0))
	}
	size := head + segmentSize*cfg.MaxSendSGE
	if cfg.Type == uverbs.RawPacket { // a request has both SGEs and inline data
		head = size
	}
	if limit := most - head - inlineHeader + s.header; cfg.MaxInline > limit {
		return tooLarge(op, "MaxInline", cfg.MaxInline, max(limit, s.header))
	}
	if cfg.MaxInline > s.header {
		size = max(size, head+align(inlineHeader+cfg.MaxInline-s.header, segmentSize))
	}
	size = align(size, blockSize)
	limit := l.sqBlocks * blockSize / size
	if cfg.MaxSendWR > limit {
		return tooLarge(op, "MaxSendWR", cfg.MaxSendWR, limit)
	}
	bytes := powerOfTwo(cfg.MaxSendWR * size)
	s.sqBlocks = bytes / blockSize
	if s.sqBlocks > l.sqBlocks {
		return tooLarge(op, "MaxSendWR", cfg.MaxSendWR, powerOfTwo(l.sqBlocks*blockSize+1)/2/size)
	}
	s.maxSend = bytes / size
	s.maxInline = min(size, most) - head - inlineHeader + s.header
	if cfg.Type == uverbs.RawPacket {
		s.maxInline = max(s.maxInline, s.header)
	}
	return nil
}

func (l *limits) recvSizes(op, what string, wrs, sges int, s *sizes) error {
	if limit := l.rqDesc / segmentSize; sges > limit {
		return tooLarge(op, what+"SGE", sges, limit)
	}
	if wrs > l.recvWR {
		return tooLarge(op, what+"WR", wrs, l.recvWR)
	}
	size := powerOfTwo(segmentSize * max(sges, 1))
	s.rqCount = max(powerOfTwo(wrs)*size, blockSize) / size
	s.rqShift = bits.TrailingZeros(uint(size))
	return nil
}

// srqSizes are the slots of an SRQ and log2 of their bytes.
func (l *limits) srqSizes(cfg *uverbs.SRQConfig) (slots, shift int, err error) {
	const op = "create SRQ"
	size := powerOfTwo(segmentSize * (1 + max(cfg.MaxSGE, 1)))
	if limit := l.rqDesc/segmentSize - 1; size > l.rqDesc {
		return 0, 0, tooLarge(op, "MaxSGE", cfg.MaxSGE, limit)
	}
	slots = powerOfTwo(cfg.MaxWR + 1)
	if slots > l.srqWR {
		return 0, 0, tooLarge(op, "MaxWR", cfg.MaxWR, l.srqWR-1)
	}
	return slots, bits.TrailingZeros(uint(size)), nil
}

// cqEntries is what the kernel makes of a number of completions.
func cqEntries(op string, n int) (int, error) {
	const most = 1 << 24 // what the consumer index counts to
	if n >= most {
		return 0, tooLarge(op, "Entries", n, most-1)
	}
	return powerOfTwo(n + 1), nil
}

// pages is n bytes in whole pages.
func pages(n int) int { return align(max(n, 1), unix.Getpagesize()) }
