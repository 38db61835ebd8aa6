package engine

import (
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A DCTState is the state of a DCT, with its value in the context.
type DCTState uint8

const (
	DCTActive   DCTState = 0
	DCTDraining DCTState = 1
	DCTDrained  DCTState = 2
)

// maxDCRespond is the number of READs and atomics that a DCT keeps per connection.
const maxDCRespond = 16

// drainTime bounds the time that a DCT drains: messages whose initiator has failed do not end.
const drainTime = 100 * time.Millisecond

// A target is what a DCT has beyond a queue pair: the DCT's number, SRQ, CQ and rights are those of the queue
// pair, which is in state RTR as long as it exists.
type target struct {
	qp         *QP
	state      DCTState
	armed      bool // the next wrong key is an event
	violations uint32
	timer      *loop.Timer // of draining
	links      int         // connections
}

// CreateDCT creates a target of dynamic connections. It uses the attributes PD, SRQ, RecvCQ, UserIndex,
// ReservedLKey, ScatterResponse, MTU, Primary, MinRNRTimer, RemoteRead, RemoteWrite, RemoteAtomic, DCKey and
// ECE. The path is that of responses, without a destination.
func (h *HCA) CreateDCT(a QPAttr) (*QP, error) {
	a.Service, a.Source, a.NoSQ, a.MaxRespond = ServiceDCT, FromSRQ, true, maxDCRespond
	a.Buffer = Buffer{PageShift: 12} // empty
	qp := &QP{QPAttr: a, hca: h}
	if err := qp.check(paramMTU|ParamRNRTimer|ParamPKeyIndex, &a); err != nil {
		return nil, err
	}
	qp, err := h.create(a)
	if err != nil {
		return nil, err
	}
	qp.target = &target{qp: qp}
	qp.state, qp.wasReady = RTR, true
	return qp, nil
}

// dct returns the DCT with a number.
func (h *HCA) dct(number uint32) (*target, error) {
	qp, err := h.qps.get(number)
	if err == nil && qp.target == nil {
		err = failf(ErrResource, "QP %#x is not a DCT", number)
	}
	if err != nil {
		return nil, err
	}
	return qp.target, nil
}

// A DCTInfo is the current context of a DCT.
type DCTInfo struct {
	QPAttr
	State      DCTState
	Violations uint32 // requests with a wrong key
}

// QueryDCT returns a DCT's current context.
func (h *HCA) QueryDCT(number uint32) (DCTInfo, error) {
	t, err := h.dct(number)
	if err != nil {
		return DCTInfo{}, err
	}
	return DCTInfo{t.qp.QPAttr, t.state, t.violations}, nil
}

// ArmDCT makes the next request with a wrong key an event.
func (h *HCA) ArmDCT(number uint32) error {
	t, err := h.dct(number)
	if err == nil {
		t.armed = true
	}
	return err
}

// DrainDCT makes a DCT refuse new messages. When those in progress have ended, the event EventDCTDrained is
// generated.
func (h *HCA) DrainDCT(number uint32) error {
	t, err := h.dct(number)
	if err != nil {
		return err
	}
	if t.state != DCTActive {
		return failf(ErrState, "DCT %#x is already drained", number)
	}
	t.state = DCTDraining
	t.timer = h.config.Loop.After(drainTime, t.drained)
	t.drain()
	return nil
}

// DestroyDCT destroys a DCT.
func (h *HCA) DestroyDCT(number uint32) error {
	t, err := h.dct(number)
	if err != nil {
		return err
	}
	return h.destroy(t.qp)
}

// drain ends draining if no message is in progress.
func (t *target) drain() {
	if t.state != DCTDraining {
		return
	}
	for _, c := range t.qp.hca.incoming.connections {
		if c.target == t && !c.endpoint.Idle() {
			return
		}
	}
	t.drained()
}

// drained abandons what is in progress, and reports that the DCT is drained.
func (t *target) drained() {
	t.timer.Stop()
	t.timer = nil
	t.state = DCTDrained
	t.qp.hca.incoming.remove(t, true)
	t.qp.hca.async(EventDCTDrained, t.qp.Number)
}

// stop ends the work in progress, without completions. A step of draining that was posted before does nothing.
func (t *target) stop() {
	t.timer.Stop()
	t.timer, t.state = nil, DCTDrained
	t.qp.hca.incoming.remove(t, false)
}

// receive processes a packet for the DCT.
func (t *target) receive(p *roce.Packet) {
	qp := t.qp
	switch {
	case t.state == DCTDrained, p.Opcode.Service() != roce.DC, !p.Opcode.Known(), p.Opcode.Response(),
		!transport.SamePartition(qp.hca.port.pkey(qp.Primary.PKeyIndex), p.PKey):
		return
	case p.DC.Key != qp.DCKey:
		t.violated()
		return
	}
	in := &qp.hca.incoming
	key := initiator{target: qp.Number, qpn: p.DC.SrcQPN, lid: p.Route.SLID, gid: p.Route.SGID}
	c := in.connections[key]
	switch {
	case t.state == DCTDraining && (c == nil || p.DC.Connection != c.number || p.Opcode.Starts() && c.endpoint.Idle()):
		return
	case c == nil:
		if c = in.add(key, t); c == nil {
			return // as if the packet was lost
		}
		c.begin(p)
	case p.DC.Connection < c.number:
		return // of an earlier connection
	case p.DC.Connection > c.number:
		c.begin(p)
	}
	in.order.MoveToFront(c.place)
	c.endpoint.Receive(p)
	if t.state == DCTDraining {
		qp.hca.config.Loop.Post(t.drain)
	}
}

// violated counts a request with a wrong key. It is dropped, as a datagram with a wrong Q_Key is.
func (t *target) violated() {
	h := t.qp.hca
	t.violations++
	h.advise(Violation{Rule: RuleQKey, QPN: t.qp.Number, Text: "a request has another DC key than DCT " +
		hex(t.qp.Number)})
	if t.armed {
		t.armed = false
		h.async(EventDCTKeyViolation, t.qp.Number)
	}
}

// begin begins a new connection of an initiator. A message of the earlier one that has not ended was given up by
// the initiator.
func (c *connection) begin(p *roce.Packet) {
	c.end(transport.RemoteAborted)
	qp := c.target.qp
	c.number = p.DC.Connection
	config := qp.transport()
	path := &config.Path
	path.DLID, path.SL, path.GRH = p.Route.SLID, p.Route.SL, p.Route.GRH
	path.DGID, path.DMAC = p.Route.SGID, p.Route.SMAC
	config.Migration = transport.Migrated
	config.DestQPN, config.Connection, config.RecvPSN = p.DC.SrcQPN, p.DC.Connection, p.DC.FirstPSN
	c.endpoint.Modify(config)
	c.endpoint.SetState(transport.RTR)
}

// end ends the connection. A receive request in use is completed with the syndrome.
func (c *connection) end(s transport.Syndrome) {
	c.target.qp.hca.dropFaults(c.token)
	c.endpoint.SetState(transport.Reset)
	if _, receives := c.endpoint.TakeBack(); s != transport.OK {
		c.target.qp.abandon(receives, s)
	}
}

// connectionQueues implements transport.Queues for a connection of a DCT.
type connectionQueues struct {
	queues
	c *connection
}

// Established implements transport.Queues. A DCT has no such event.
func (q *connectionQueues) Established() {}

// Broken ends the connection. The DCT continues.
func (q *connectionQueues) Broken(transport.Event) {
	q.qp.hca.dropFaults(q.c.token)
	q.c.endpoint.SetState(transport.Err)
	_, receives := q.c.endpoint.TakeBack()
	q.qp.abandon(receives, transport.Flushed)
	q.qp.hca.config.Loop.Post(q.c.target.drain)
}

// describeInitiator stores the source of a message in a completion.
func (qp *QP) describeInitiator(b []byte, p *roce.Packet) {
	prm.CQERemoteQPN.Set(b, uint64(p.DC.SrcQPN))
	prm.CQESLID.Set(b, uint64(p.Route.SLID))
	prm.CQESL.Set(b, uint64(p.Route.SL))
}
