package mlx5

import (
	"math/bits"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/uverbs"
)

// sizes are the sizes of a QP's queues.
type sizes struct {
	sqBlocks  int // 0: no send queue
	maxSend   int // number of requests that fit, whatever their size
	maxInline int

	rqCount int // 0: no receive queue
	rqRoom  int // receives that may be posted: half of the slots of an out-of-order QP
	rqShift int // log2 of the size of a receive in bytes

	split  bool // the send ring begins on a separate page
	header int  // bytes of a frame that must be inline in its request
}

func align(n, to int) int { return (n + to - 1) &^ (to - 1) }

func powerOfTwo(n int) int {
	if n <= 1 {
		return 1
	}
	return 1 << bits.Len(uint(n-1))
}

// sizesOf computes the sizes for a configuration. Each request is assumed to have the size of the
// largest one, which includes the segments of a bind. The C library computes it in the same way,
// so that the same number of requests fit.
func (l *limits) sizesOf(cfg *uverbs.QPConfig, outOfOrder bool) (s sizes, err error) {
	if cfg.Type == uverbs.RawPacket {
		s.split, s.header = true, l.header
	}
	if cfg.MaxSendWR > 0 {
		if err = l.sendSizes(cfg, &s); err != nil {
			return s, err
		}
	}
	if cfg.SRQ != nil || cfg.MaxRecvWR == 0 {
		return s, nil
	}
	slots := cfg.MaxRecvWR
	if outOfOrder && slots > 1 {
		slots *= 2 // so that posting does not overwrite the WRID of an old receive that is still in use
	}
	err = l.recvSizes("create QP", "MaxRecv", slots, cfg.MaxRecvSGE, &s)
	if outOfOrder && s.rqCount > 1 { // the device's minimum may be more slots than were asked for
		s.rqRoom = s.rqCount / 2
	}
	return s, err
}

func overhead(t uverbs.QPType) int {
	switch t {
	case uverbs.UD:
		return overheadUD
	case uverbs.XRCSend:
		return overheadXRC
	case uverbs.DCI:
		return overheadDC
	case uverbs.RawPacket:
		return overheadRaw
	}
	return overheadRC
}

// largest returns the largest size of a request in these computations. The control segment has 6
// bits for the number of segments. On a connected queue the segments of a bind are part of the
// overhead of every request, although a bind has no data, so the computed size may exceed that
// limit.
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
	if cfg.Type == uverbs.RawPacket { // a request may have both SGEs and inline data
		head = size
	}
	if limit := most - head - inlineHeader + s.header; cfg.MaxInline > limit {
		return tooLarge(op, "MaxInline", cfg.MaxInline, max(limit, s.header))
	}
	if cfg.MaxInline > s.header {
		size = max(size, head+align(inlineHeader+cfg.MaxInline-s.header, segmentSize))
	}
	if limit := most - head; cfg.MaxTSOHeader > limit {
		return tooLarge(op, "MaxTSOHeader", cfg.MaxTSOHeader, max(limit, 0))
	}
	size = max(size, head+align(cfg.MaxTSOHeader, segmentSize))
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
	s.rqRoom, s.rqShift = s.rqCount, bits.TrailingZeros(uint(size))
	return nil
}

// srqSize is the size of an SRQ's ring.
type srqSize struct {
	slots int // one more than the number of receives
	total int // including resting slots: see restQueue
	shift int // log2 of the size of a slot in bytes
}

// srqSizes returns the size of an SRQ. It adds as many resting slots as there are others, unless
// the device does not support that many.
func (l *limits) srqSizes(cfg *driver.SRQConfig) (s srqSize, err error) {
	const op = "create SRQ"
	size := powerOfTwo(segmentSize * (1 + max(cfg.MaxSGE, 1)))
	if limit := l.rqDesc/segmentSize - 1; size > l.rqDesc {
		return s, tooLarge(op, "MaxSGE", cfg.MaxSGE, limit)
	}
	s.slots, s.shift = powerOfTwo(cfg.MaxWR+1), bits.TrailingZeros(uint(size))
	if s.slots > l.srqWR {
		return s, tooLarge(op, "MaxWR", cfg.MaxWR, l.srqWR-1)
	}
	s.total = s.slots
	if n := 2*cfg.MaxWR + 1; n <= l.srqWR {
		s.total = powerOfTwo(n)
	}
	return s, nil
}

// cqEntries returns the number of entries that the kernel allocates for n completions.
func cqEntries(op string, n int) (int, error) {
	const most = 1 << 24 // the range of the consumer index
	if n >= most {
		return 0, tooLarge(op, "Entries", n, most-1)
	}
	return powerOfTwo(n + 1), nil
}

// pages rounds n bytes up to whole pages.
func pages(n int) int { return align(max(n, 1), unix.Getpagesize()) }
