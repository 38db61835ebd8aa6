package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// SRQAttr is a shared receive queue's context: a list of WQEs linked by index.
type SRQAttr struct {
	XRC          bool
	PD           uint32
	XRCD         uint32 // XRC
	CQ           uint32 // XRC: the CQ of completions
	UserIndex    uint32
	LogSize      uint8
	LogStride    uint8 // log2 of the size of a WQE in bytes
	Buffer       Buffer
	Record       uint64 // of the doorbell record: the receive counter
	Limit        uint16 // an event is generated when fewer WQEs are left; 0 disables it
	ReservedLKey bool
}

// An SRQ is a shared receive queue.
type SRQ struct {
	SRQAttr
	Number          uint32
	Receives, Jumps uint64 // as in Counters, for this SRQ

	hca             *HCA
	pd              *domain
	xrcd            *domain
	cq              *CQ
	users           int
	head            uint16 // index of the next WQE
	taken           uint16 // number of WQEs fetched
	last            uint16 // index of the last WQE fetched, if any
	ahead           lot    // WQEs fetched and not used by a message yet
	broken          bool
	counted, walked uint16 // the counter when receives were last posted, and the index of the next one
	origins         origins
}

// CreateSRQ creates a shared receive queue.
func (h *HCA) CreateSRQ(a SRQAttr) (*SRQ, error) {
	s := &SRQ{SRQAttr: a, hca: h}
	var err error
	if s.pd, err = h.pds.get(a.PD); err != nil {
		return nil, err
	}
	if a.XRC {
		if s.xrcd, err = h.xrcds.get(a.XRCD); err != nil {
			return nil, err
		}
		if s.cq, err = h.cqs.get(a.CQ); err != nil {
			return nil, err
		}
	}
	if a.LogSize > h.limits.LogWQSize || a.LogStride < 5 || a.LogStride > 11 {
		return nil, failf(ErrLimit, "an SRQ of 2^%d elements of 2^%d bytes", a.LogSize, a.LogStride)
	}
	if !a.Buffer.holds(1 << (a.LogSize + a.LogStride)) {
		return nil, failf(ErrParam, "an SRQ of 2^%d elements of 2^%d bytes in %d pages", a.LogSize, a.LogStride,
			len(a.Buffer.Pages))
	}
	if a.Record%4 != 0 {
		return nil, failf(ErrParam, "a doorbell record at %#x", a.Record)
	}
	if err := h.keep(&s.Buffer); err != nil {
		return nil, err
	}
	if s.Number, err = h.srqs.add(s); err != nil {
		h.drop(&s.Buffer)
		return nil, err
	}
	s.addUsers(1)
	return s, nil
}

func (s *SRQ) addUsers(n int) {
	s.pd.users += n
	if s.XRC {
		s.xrcd.users += n
		s.cq.addUsers(n)
	}
}

// SRQ returns the shared receive queue with the given number. Its Limit is 0
// once it was reached.
func (h *HCA) SRQ(number uint32) (*SRQ, error) { return h.srqs.get(number) }

// ArmSRQ sets the limit for an event when fewer WQEs are left.
func (h *HCA) ArmSRQ(number uint32, limit uint16) error {
	s, err := h.srqs.get(number)
	if err != nil {
		return err
	}
	if int(limit) > 1<<s.LogSize {
		return failf(ErrParam, "a limit of %d in an SRQ of %d", limit, 1<<s.LogSize)
	}
	s.Limit = limit
	s.checkLimit()
	return nil
}

// DestroySRQ destroys a shared receive queue that no queue pair uses.
func (h *HCA) DestroySRQ(number uint32) error {
	s, err := h.srqs.get(number)
	if err != nil {
		return err
	}
	if s.users > 0 {
		return failf(ErrBusy, "SRQ %#x has %d users", number, s.users)
	}
	s.addUsers(-1)
	h.drop(&s.Buffer)
	h.srqs.remove(number)
	h.config.Tracer.Forget("srq", uint64(number))
	return nil
}

// posted returns the number of WQEs in the list.
func (s *SRQ) posted() uint16 {
	if s.broken {
		return 0
	}
	n, err := s.hca.posted(s.Record, s.taken, s.LogSize, Violation{SRQN: s.Number, Index: s.head})
	if err != nil {
		s.fail()
	}
	return n
}

// take returns the WQE for the next message, or nil if it is empty.
func (s *SRQ) take() *receiveWQE { return s.ahead.take(s.hca.config.ShuffleSRQ, s.fetch) }

// fetch takes the WQE at the head of the list, or returns nil if the list is empty.
func (s *SRQ) fetch() *receiveWQE {
	if s.posted() == 0 {
		return nil
	}
	raw := make([]byte, 1<<s.LogStride)
	if s.hca.load(&s.Buffer, uint64(s.head)<<s.LogStride, raw) != nil {
		s.fail()
		return nil
	}
	w := &receiveWQE{index: s.head, srq: s}
	w.decode(s.hca, raw[prm.WQENext.Size:], s.user())
	s.hca.traceReceive(trace.Object("srq", "srq", s.Number), w)
	w.check(s.hca, Violation{Origin: s.origins.of(w.index), SRQN: s.Number, Index: w.index,
		Offset: uint64(s.head) << s.LogStride, WQE: raw})
	next := uint16(prm.NextIndex.Get(raw))
	if int(next) >= 1<<s.LogSize {
		s.hca.violate(Violation{Rule: RuleSRQLink, SRQN: s.Number, Index: s.head, Offset: uint64(s.head) << s.LogStride,
			WQE:  raw[:16],
			Text: "the next index is " + hex(next)})
		s.fail()
		return nil
	}
	s.hca.countReceive(s)
	s.head, s.last = next, s.head
	s.taken++
	s.checkLimit()
	return w
}

// user returns the SRQ as a user of memory keys.
func (s *SRQ) user() user { return user{pd: s.PD, qpn: AnyQPN, reserved: s.ReservedLKey} }

// checkLimit generates the limit event, once.
func (s *SRQ) checkLimit() {
	if s.Limit > 0 && s.posted() < s.Limit {
		s.Limit = 0
		s.hca.async(EventSRQLimit, s.Number)
	}
}

// fail fails an SRQ that cannot be read.
func (s *SRQ) fail() {
	if !s.broken {
		s.broken = true
		s.hca.async(EventSRQCatastrophic, s.Number)
	}
}
