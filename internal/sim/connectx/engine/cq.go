package engine

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// CQAttr is a completion queue's context.
type CQAttr struct {
	EQN      uint32
	UAR      uint32
	Wide     bool // completions of 128 bytes
	LogSize  uint8
	Buffer   Buffer
	Record   uint64 // of the doorbell record: consumer counter, arm word
	NoCheck  bool   // entries that were not polled may be overwritten
	MaxCount uint16 // moderation: completions,
	Period   uint16 // and microseconds before an event; zeros disable it
}

// A CQState is the state of a completion queue.
type CQState uint8

const (
	CQIdle           CQState = iota // not armed
	CQArmedSolicited                // armed for a solicited completion or an error
	CQArmed                         // armed for any completion
	CQFailed                        // it overflowed
)

// A CQ is a completion queue.
type CQ struct {
	CQAttr
	Number uint32

	hca       *HCA
	state     CQState
	producer  uint32 // completions ever written
	consumer  uint32 // the consumer counter as last read
	solicited uint32 // the producer counter behind the last solicited completion
	noted     bool   // solicited is valid
	waiting   int    // completions since the CQ was armed: moderation
	timer     *loop.Timer
	generated uint32 // events
	processed uint32 // events that the host had processed at its last arm doorbell: at least so many
	users     int
	checked   bool       // checkFresh has looked at the buffer
	demand    int        // requests whose completions the CQ must have room for; see account
	unpolled  []pending  // completions that the host has not polled; see Config.Program
	created   Origin     // see Config.Program
	lost      *Violation // the completions that were there when it was armed have not been polled: see Config.Program
}

func (a *CQAttr) stride() uint64 {
	if a.Wide {
		return 128
	}
	return 64
}

func (a *CQAttr) size() uint32 { return 1 << a.LogSize }

func (h *HCA) checkCQ(a *CQAttr) error {
	if a.LogSize > h.limits.LogCQSize {
		return failf(ErrLimit, "a CQ of 2^%d completions", a.LogSize)
	}
	if !a.Buffer.holds(a.stride() << a.LogSize) {
		return failf(ErrParam, "a CQ of 2^%d completions in %d pages of 2^%d bytes", a.LogSize, len(a.Buffer.Pages),
			a.Buffer.PageShift)
	}
	if a.Record%8 != 0 {
		return failf(ErrParam, "a CQ's doorbell record at %#x", a.Record)
	}
	return nil
}

// CreateCQ creates a completion queue.
func (h *HCA) CreateCQ(a CQAttr) (*CQ, error) {
	if err := h.checkCQ(&a); err != nil {
		return nil, err
	}
	cq := &CQ{CQAttr: a, hca: h, created: h.origin()}
	if err := h.keep(&cq.Buffer); err != nil {
		return nil, err
	}
	n, err := h.cqs.add(cq)
	if err != nil {
		h.drop(&cq.Buffer)
		return nil, err
	}
	cq.Number = n
	return cq, nil
}

// CQ returns the completion queue with the given number.
func (h *HCA) CQ(number uint32) (*CQ, error) { return h.cqs.get(number) }

// DestroyCQ destroys a completion queue that no queue pair or SRQ uses.
func (h *HCA) DestroyCQ(number uint32) error {
	cq, err := h.cqs.get(number)
	if err != nil {
		return err
	}
	if cq.users > 0 {
		return failf(ErrBusy, "CQ %#x has %d users", number, cq.users)
	}
	cq.stop()
	cq.reportLost()
	h.drop(&cq.Buffer)
	h.cqs.remove(number)
	h.config.Tracer.Forget("cq", uint64(number))
	return nil
}

func (cq *CQ) stop() { cq.timer.Stop() }

// addUsers adds n to the number of queues that refer to the CQ. Its buffer is checked with the first one: a program
// of DevX may mark the entries after it has created the CQ, as UCX does.
func (cq *CQ) addUsers(n int) {
	if cq.users += n; !cq.checked && n > 0 {
		cq.checked = true
		cq.checkFresh()
	}
}

// State returns the CQ's state and the counters of completions written and, as
// last read, polled.
func (cq *CQ) State() (s CQState, producer, consumer uint32) {
	return cq.state, cq.producer, cq.consumer
}

// Moderate sets the number of completions or microseconds after which an event
// is generated.
func (cq *CQ) Moderate(count, period uint16) { cq.MaxCount, cq.Period = count, period }

// A completion is a CQE under construction: 64 bytes, and the data in front of
// them.
type completion struct {
	cqe  [64]byte
	data []byte // of scatter to CQE: 64 bytes

	// Of a receive request: see Config.Program.
	origin  Origin
	extents []*extent
}

// push writes a completion into the queue.
func (cq *CQ) push(c *completion, solicited bool) {
	if cq.state == CQFailed || !cq.room(c) {
		return
	}
	b := c.cqe[:]
	prm.CQESolicited.SetBool(b, solicited)
	if op := prm.CQEOpcode.Get(b); op != prm.CQEReqErr && op != prm.CQERespErr {
		prm.CQETimestamp.Set(b, cq.hca.config.Now())
	}
	if !cq.write(&cq.CQAttr, cq.producer, c) {
		cq.fail(CQAccessViolation)
		return
	}
	cq.trace(b)
	cq.note(c)
	cq.producer++
	if op := prm.CQEOpcode.Get(b); solicited || op == prm.CQEReqErr || op == prm.CQERespErr {
		cq.solicited, cq.noted = cq.producer, true
	}
	cq.notify()
}

// write stores a completion at an index of a ring, the owner bit last.
func (cq *CQ) write(a *CQAttr, at uint32, c *completion) bool {
	b := c.cqe[:]
	prm.CQEOwner.Set(b, uint64(at>>a.LogSize)&1)
	off := uint64(at&(a.size()-1)) * a.stride()
	if a.Wide {
		if c.data != nil && !cq.hca.store(&a.Buffer, off, c.data) {
			return false
		}
		off += 64
	}
	return cq.hca.store(&a.Buffer, off, b[:60]) && cq.hca.storeWord(&a.Buffer, off+60, b[60:])
}

func (h *HCA) store(b *Buffer, off uint64, p []byte) bool {
	err := h.each(b, off, len(p), func(dst []byte) {
		copy(dst, p)
		p = p[len(dst):]
	})
	return err == nil
}

func (h *HCA) storeWord(b *Buffer, off uint64, word []byte) bool {
	return h.each(b, off, 4, func(dst []byte) { StoreLast(dst, word) }) == nil
}

// room reports whether a completion would overwrite only polled ones. Otherwise
// it fails the queue.
func (cq *CQ) room(c *completion) bool {
	if cq.NoCheck || cq.producer-cq.consumer < cq.size()/2 && cq.size() > 1 {
		return true
	}
	if !cq.poll() {
		return false
	}
	if cq.producer-cq.consumer < cq.size() {
		return true
	}
	cq.overran(c)
	cq.fail(CQOverrun)
	return false
}

// poll reads the consumer counter, which has 24 bits.
func (cq *CQ) poll() bool {
	w, err := cq.hca.record(cq.Record)
	if err != nil {
		cq.fail(CQAccessViolation)
		return false
	}
	cq.consume(w, "doorbell record")
	return true
}

// consume records a consumer counter.
func (cq *CQ) consume(ci uint32, where string) {
	const mask = 1<<24 - 1
	ahead := (ci - cq.consumer) & mask
	if ahead <= cq.producer-cq.consumer {
		cq.consumer += ahead
		cq.reap(int(ahead))
		return
	}
	if behind := (cq.consumer - ci) & mask; where != "doorbell record" && behind <= cq.size() {
		return // overtaken by a later doorbell
	}
	cq.hca.violate(Violation{Rule: RuleConsumer, CQN: cq.Number,
		Text: "consumer counter " + hex(ci&mask) + " in the " + where + " is not between " + hex(cq.consumer&mask) +
			" and " + hex(cq.producer&mask)})
}

// fail moves a CQ to its error state: nothing is written any more, and the host
// is notified.
func (cq *CQ) fail(syndrome uint8) {
	if cq.state == CQFailed {
		return
	}
	cq.state = CQFailed
	cq.stop()
	cq.hca.config.Events.Async(AsyncEvent{Type: EventCQError, Number: cq.Number, Syndrome: syndrome})
	for _, f := range cq.dependents() {
		cq.hca.config.Loop.Post(f)
	}
}

// dependents returns functions that fail the queues that complete into the CQ.
func (cq *CQ) dependents() (all []func()) {
	h := cq.hca
	for _, qp := range h.qps.all() {
		if qp.sendCQ == cq || qp.recvCQ == cq {
			all = append(all, qp.fatal)
		}
	}
	for _, s := range h.srqs.all() {
		if s.XRC && s.cq == cq {
			all = append(all, s.fail)
		}
	}
	for _, q := range h.eth.sqs.all() {
		if q.cq == cq {
			all = append(all, q.fail)
		}
	}
	for _, q := range h.eth.rqs.all() {
		if q.cq == cq {
			all = append(all, q.fail)
		}
	}
	return all
}
