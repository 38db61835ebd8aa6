package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// Event types that are not in package engine.
const (
	eventCompletion  = 0x00
	eventPort        = 0x09
	eventCommand     = 0x0a
	eventPageRequest = 0x0b
	eventPageFault   = 0x0c
)

const (
	maxEQs     = 64 // the doorbell has eight bits for the number, log_max_eq four
	eqeShift   = 6
	indexMask  = 1<<24 - 1
	eqStatusOK = 0
	eqOverflow = 9
	eqStArmed  = 9
	eqStFired  = 10
)

// An eventQueue is a ring of events in the host's memory.
type eventQueue struct {
	number   uint32
	vector   int
	uar      uint32
	logSize  uint8
	shift    uint8 // of a page
	pages    []uint64
	mask     uint64
	context  []byte // as it was created
	producer uint32
	consumer uint32
	armed    bool
	overrun  bool
}

// eventQueues are the event queues of a device. At most one of them gets
// command events.
type eventQueues struct {
	queues  [maxEQs]*eventQueue
	next    uint32
	command *eventQueue
}

func newEvent(kind uint8) []byte {
	e := make([]byte, prm.EQE.Size)
	prm.EQEType.Set(e, uint64(kind))
	return e
}

// postAll posts an event to every queue whose mask has its type. It reports
// whether a queue exists.
func (d *Device) postAll(event []byte, kind uint8) bool {
	posted := false
	for _, eq := range d.eqs.queues {
		if eq != nil && eq.mask>>kind&1 != 0 {
			d.post(eq, event)
			posted = true
		}
	}
	return posted
}

// postTo posts an event to the queue with the given number, if it exists.
func (d *Device) postTo(eqn uint32, event []byte) {
	if eqn < maxEQs && d.eqs.queues[eqn] != nil {
		d.post(d.eqs.queues[eqn], event)
	}
}

// post writes an event, the word with the owner bit last, and interrupts the
// host if the queue is armed. A full queue is overrun and gets no more events.
func (d *Device) post(eq *eventQueue, event []byte) {
	if eq.overrun {
		return
	}
	if (eq.producer-eq.consumer)&indexMask >= 1<<eq.logSize {
		eq.overrun = true
		d.report("event queue %d was overrun", eq.number)
		return
	}
	slot := uint64(eq.producer&(1<<eq.logSize-1)) << eqeShift
	p, err := d.view(eq.pages[slot>>eq.shift]+slot&(1<<eq.shift-1), prm.EQE.Size)
	if err != nil {
		eq.overrun = true
		d.report("event queue %d: %w", eq.number, err)
		return
	}
	prm.EQEOwner.Set(event, uint64(eq.producer>>eq.logSize))
	d.traceEvent(eq, event)
	last := prm.EQE.Size - 4
	copy(p[:last], event)
	engine.StoreLast(p[last:], event[last:])
	eq.producer = (eq.producer + 1) & indexMask
	if eq.armed {
		d.interrupt(eq)
	}
}

// interrupt raises the queue's vector once per arming.
func (d *Device) interrupt(eq *eventQueue) {
	eq.armed = false
	if d.machine == nil {
		return
	}
	if err := d.machine.Interrupt(eq.vector); err != nil {
		d.report("event queue %d: %w", eq.number, err)
	}
}

// eqDoorbell processes a store to an event queue doorbell.
func (d *Device) eqDoorbell(uar uint32, p []byte, arm bool) {
	number, index := uint32(prm.EQDoorbellEQN.Get(p)), uint32(prm.EQDoorbellConsumerIndex.Get(p))
	var eq *eventQueue
	if number < maxEQs {
		eq = d.eqs.queues[number]
	}
	d.config.Tracer.Emit("eq_doorbell", trace.Object("eqn", "eq", number), trace.Num("index", index),
		trace.Bool("arm", arm))
	switch {
	case eq == nil:
		d.report("a doorbell of event queue %d, which does not exist", number)
		return
	case eq.uar != uar:
		d.report("a doorbell of event queue %d in UAR page %#x: its page is %#x", number, uar, eq.uar)
	case (eq.producer-index)&indexMask > (eq.producer-eq.consumer)&indexMask:
		d.report("consumer index %#x of event queue %d: it was %#x, the producer's is %#x", index, number, eq.consumer,
			eq.producer)
		return
	}
	eq.consumer = index
	if !arm {
		return
	}
	eq.armed = true
	if eq.producer != eq.consumer {
		d.interrupt(eq)
	}
}

func (d *Device) createEQ(in, out []byte) error {
	context := prm.CreateEQInEQC.Bytes(in)
	eq := &eventQueue{
		vector:  int(prm.EQCIntr.Get(context)),
		uar:     uint32(prm.EQCUARPage.Get(context)),
		logSize: uint8(prm.EQCLogEQSize.Get(context)),
		shift:   uint8(prm.EQCLogPageSize.Get(context)) + 12,
		mask:    prm.CreateEQInEventBitmask.Get(in),
		context: append([]byte(nil), context...),
	}
	pages := 1
	if eq.logSize+eqeShift > eq.shift {
		pages = 1 << (eq.logSize + eqeShift - eq.shift)
	}
	switch {
	case uint64(eq.logSize) > d.caps.general(prm.HCACapLogMaxEQSize):
		return refuse(statusLimit, reasonSize)
	case eq.vector >= vectors:
		return refuse(statusBadParam, reasonVector)
	case !d.uars.has(eq.uar):
		return refuse(statusBadResource, reasonUAR)
	case eq.mask>>eventCommand&1 != 0 && d.eqs.command != nil:
		return refuse(statusBusy, reasonEvents)
	case prm.EQCPageOffset.Is(context) || len(in) < prm.CreateEQIn.Size+8*pages:
		return refuse(statusBadParam, reasonBuffer)
	}
	if err := d.hca.ReservePages(pages); err != nil {
		return err
	}
	for i := range pages {
		eq.pages = append(eq.pages, prm.CreateEQInPAS.At(i).Get(in)&^(pageSize-1))
	}
	if err := d.eqs.add(eq, 1<<d.caps.general(prm.HCACapLogMaxEQ)); err != nil {
		d.hca.ReleasePages(pages)
		return err
	}
	prm.CreateEQOutEQNumber.Set(out, uint64(eq.number))
	return nil
}

// add assigns a number to a queue. The last one is reused only after all
// others.
func (q *eventQueues) add(eq *eventQueue, limit uint32) error {
	limit = min(limit, maxEQs)
	for range limit {
		n := q.next
		q.next = (q.next + 1) % limit
		if n == 0 || q.queues[n] != nil {
			continue
		}
		eq.number, q.queues[n] = n, eq
		if eq.mask>>eventCommand&1 != 0 {
			q.command = eq
		}
		return nil
	}
	return refuse(statusLimit, reasonTooMany)
}

func (d *Device) eventQueue(number uint64) (*eventQueue, error) {
	if number >= maxEQs || d.eqs.queues[number] == nil {
		return nil, refuse(statusBadResource, reasonUnknown)
	}
	return d.eqs.queues[number], nil
}

func (d *Device) queryEQ(in, out []byte) error {
	eq, err := d.eventQueue(prm.QueryEQInEQNumber.Get(in))
	if err != nil {
		return err
	}
	context := prm.QueryEQOutEQC.Bytes(out)
	copy(context, eq.context)
	prm.EQCStatus.Set(context, eqStatusOK)
	if eq.overrun {
		prm.EQCStatus.Set(context, eqOverflow)
	}
	prm.EQCST.Set(context, eqStFired)
	if eq.armed {
		prm.EQCST.Set(context, eqStArmed)
	}
	prm.EQCConsumerCounter.Set(context, uint64(eq.consumer))
	prm.EQCProducerCounter.Set(context, uint64(eq.producer))
	prm.QueryEQOutEventBitmask.Set(out, eq.mask)
	return nil
}

func (d *Device) destroyEQ(in, out []byte) error {
	eq, err := d.eventQueue(prm.DestroyEQInEQNumber.Get(in))
	if err != nil {
		return err
	}
	d.eqs.queues[eq.number] = nil
	d.hca.ReleasePages(len(eq.pages))
	if d.eqs.command == eq {
		d.eqs.command = nil
	}
	return nil
}
