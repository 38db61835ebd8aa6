package transport

import (
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A Type is the service of an endpoint.
type Type uint8

const (
	RC Type = iota
	UC
	UD
	XRCInitiator // sends only
	XRCTarget    // receives only
	DCInitiator  // sends only, to the destinations of its requests
	DCTarget     // receives only: the target's end of one connection
)

// A State is the state of a queue pair.
type State uint8

const (
	Reset State = iota
	Init
	RTR
	RTS
	SQD
	SQE
	Err
)

// A MigrationState is the state of a path's migration.
type MigrationState uint8

const (
	Migrated MigrationState = iota
	Rearm
	Armed
)

// Config is the configuration of an endpoint.
type Config struct {
	Type Type
	QPN  uint32
	// SourceQPN is the source QP number of datagrams; 0 means QPN.
	SourceQPN uint32
	DestQPN   uint32
	PKey      uint16
	QKey      uint32 // UD
	MTU       int    // of the path, in bytes: 256 to 4096; any other value means 4096
	Path      Path
	AltPath   Path
	Migration MigrationState

	SendPSN uint32 // of the first packet after the transition from RTR to RTS
	RecvPSN uint32 // of the first packet expected in RTR

	RetryCount  uint8 // 0 to 7
	RNRRetry    uint8 // 0 to 7; 7 means no limit
	AckTimeout  uint8 // 4.096 µs times two to this power; 0 means no timeout
	MinRNRTimer uint8 // code of the time that the peer waits after an RNR NAK
	MaxInitiate int   // outstanding READs and atomics of the requester
	MaxRespond  int   // READs and atomics that the responder keeps for retries

	// OutOfOrder permits packets to overtake others, for a reliable service: both ends must have it. The requester
	// sends its packets in lots of Reorder, each from the last to the first; 0 and 1 keep their order.
	OutOfOrder bool
	Reorder    int

	Connect    func() uint64 // DCInitiator: returns the number of a new connection
	Connection uint64        // DCTarget: the connection's number
}

// Limits of the work done at once.
const (
	burst = 64  // packets in one step
	turn  = 256 // packets before other steps of the loop run
)

// An Endpoint is the protocol of one queue pair. Its methods must be called
// inside the loop.
type Endpoint struct {
	loop   *loop.Loop
	port   Port
	queues Queues
	config Config
	state  State
	epoch  int // incremented when outstanding work is abandoned

	established bool // the owner was notified by Established
	misled      bool // the owner was notified of a migration to a different path
	work        func()
	posted      bool // a step is queued
	later       *loop.Timer
	sent        int // packets since other steps of the loop ran

	sender    sender
	responder responder
}

// New returns an endpoint in state Reset.
func New(l *loop.Loop, port Port, queues Queues, c Config) *Endpoint {
	e := &Endpoint{loop: l, port: port, queues: queues}
	e.sender.e, e.responder.e = e, e
	e.work = e.step
	e.Modify(c)
	return e
}

// Modify replaces the configuration. Outstanding work continues with the new
// one. PSNs take effect when SetState enters RTR and RTS.
func (e *Endpoint) Modify(c Config) {
	if c.MTU < 256 || c.MTU > roce.MaxPayload || c.MTU&3 != 0 {
		c.MTU = roce.MaxPayload
	}
	c.MinRNRTimer &= 31
	e.config, e.misled = c, false
}

// Config returns the current configuration, which a migration may have changed.
func (e *Endpoint) Config() Config { return e.config }

// State returns the state.
func (e *Endpoint) State() State { return e.state }

// PSN returns the PSN of the next packet to send and of the next expected
// packet.
func (e *Endpoint) PSN() (send, recv uint32) { return e.sender.next, e.responder.expected }

// SetState changes the state. The owner has checked that the transition is
// valid. Reset, Err and SQE stop outstanding work: see TakeBack.
func (e *Endpoint) SetState(s State) {
	old := e.state
	e.state = s
	switch s {
	case Reset, Init, Err:
		e.epoch++
		e.sender.stop()
		e.responder.stop()
		e.later.Stop()
		e.later = nil
	case SQE:
		e.epoch++
		e.sender.stop()
	case RTR:
		e.established = false
		e.responder.start()
	case RTS:
		if old != SQD && old != SQE && old != RTS {
			e.sender.start(e.config.SendPSN)
		} else if old == SQE {
			e.sender.start(e.sender.next)
		}
		e.schedule()
	case SQD:
		e.sender.drained = false
		e.schedule()
	}
}

// TakeBack returns to the owner the requests taken from Queues that have not
// completed, in order, and the receive requests of unfinished messages: at most
// one, unless the endpoint is out of order. It is for the states Reset, Err and
// SQE. In SQE the responder continues and keeps its receive requests.
func (e *Endpoint) TakeBack() ([]*Request, []*Receive) {
	requests := e.sender.queue
	if e.sender.pending != nil {
		requests = append(requests, e.sender.pending)
	}
	e.sender.queue, e.sender.pending, e.sender.at = nil, nil, 0
	if e.state == SQE {
		return requests, nil
	}
	return requests, e.responder.takeBack()
}

// Kick reports that requests were posted.
func (e *Endpoint) Kick() {
	if e.state == RTS {
		e.schedule()
	}
}

// schedule queues a step, once.
func (e *Endpoint) schedule() {
	switch {
	case e.posted || e.later != nil:
	case e.sent < turn:
		e.posted = true
		e.loop.Post(e.work)
	default:
		e.later = e.loop.After(0, e.work)
	}
}

// step sends what is ready: responses first, because the peer waits for them.
func (e *Endpoint) step() {
	e.posted = false
	if e.later != nil {
		e.later, e.sent = nil, 0
	}
	room := burst
	if room = e.responder.sendResponses(room); room > 0 {
		room = e.sender.send(room)
		e.sender.endLot()
	}
	e.sent += burst - room
	if room <= 0 {
		e.schedule()
	}
}

// Receive processes a packet for this endpoint and becomes its owner.
func (e *Endpoint) Receive(p *roce.Packet) {
	if e.state < RTR || e.state == Err || !e.fits(p) {
		return
	}
	if !e.established && e.state == RTR && !e.dynamic() {
		epoch := e.epoch
		e.established = true
		if e.queues.Established(); e.epoch != epoch {
			return
		}
	}
	if !e.migrating(p) {
		return
	}
	switch {
	case e.config.Type == UD:
		e.responder.datagram(p)
	case p.Opcode.Response():
		if e.sender.reliable() {
			e.sender.handleResponse(p)
		}
	case e.config.Type == UC:
		e.responder.unreliable(p)
	case e.responder.reliable():
		e.responder.request(p)
	}
}

// fits reports whether a packet has this endpoint's service and partition.
func (e *Endpoint) fits(p *roce.Packet) bool {
	if p.Opcode.Service() != e.service() || !p.Opcode.Known() {
		return false
	}
	if !SamePartition(e.config.PKey, p.PKey) {
		return false
	}
	switch e.config.Type {
	case UD:
		return p.DETH.QKey == e.config.QKey
	case DCInitiator:
		return p.Opcode.Response() && p.DC.Connection == e.sender.link.number
	case DCTarget:
		return p.DC.Connection == e.config.Connection
	}
	return true
}

// SamePartition reports whether ports with the two P_Keys may communicate.
func SamePartition(a, b uint16) bool { return (a|b)&0x8000 != 0 && (a^b)&0x7FFF == 0 }

// service returns the upper bits of the opcodes.
func (e *Endpoint) service() roce.Opcode {
	switch e.config.Type {
	case UC:
		return roce.UC
	case UD:
		return roce.UD
	case XRCInitiator, XRCTarget:
		return roce.XRC
	case DCInitiator, DCTarget:
		return roce.DC
	}
	return roce.RC
}

// packet returns a new packet to the peer.
func (e *Endpoint) packet(op roce.Opcode, psn uint32) *roce.Packet {
	p := &roce.Packet{
		Opcode: e.service().Of(op), PSN: psn, PKey: e.config.PKey, DestQPN: e.config.DestQPN,
		MigReq: e.config.Migration == Migrated,
	}
	if e.config.Type == DCTarget {
		p.DC = roce.DCETH{Connection: e.config.Connection, SrcQPN: e.config.QPN, FirstPSN: e.config.RecvPSN & psnMask}
	}
	return p
}

func (e *Endpoint) transmit(p *roce.Packet) { e.port.Send(&e.config.Path, p) }

// migrating follows the peer's migration of the path: a packet with the
// migration bit set makes this end migrate too. It reports whether the packet
// is to be processed.
func (e *Endpoint) migrating(p *roce.Packet) bool {
	if e.config.Type == UD || e.dynamic() {
		return true
	}
	epoch := e.epoch
	switch {
	case e.config.Migration == Rearm && !p.MigReq:
		e.config.Migration = Armed
	case e.config.Migration == Armed && p.MigReq && onPath(&e.config.AltPath, &p.Route):
		e.migrate()
	case e.config.Migration == Armed && p.MigReq:
		if !e.misled { // report it once
			e.misled = true
			e.queues.Migrated(false)
		}
		return false
	}
	return e.epoch == epoch
}

// onPath reports whether a packet came from the peer of a path.
func onPath(path *Path, r *roce.Route) bool {
	if r.Version == roce.InfiniBand {
		return r.SLID == path.DLID
	}
	return r.SGID == path.DGID
}

// migrate changes to the alternate path.
func (e *Endpoint) migrate() {
	e.config.Path, e.config.AltPath = e.config.AltPath, e.config.Path
	e.config.Migration, e.misled = Migrated, false
	e.queues.Migrated(true)
}

// A clock is a timer that is cheap to restart.
type clock struct {
	timer *loop.Timer
	due   time.Time
	set   bool
}

// start runs f after d, instead of the function set before.
func (c *clock) start(l *loop.Loop, d time.Duration, f func()) {
	due := l.Now().Add(d)
	if c.timer != nil && due.Before(c.due) {
		c.timer.Stop()
		c.timer = nil
	}
	c.due, c.set = due, true
	if c.timer == nil {
		c.arm(l, d, f)
	}
}

func (c *clock) arm(l *loop.Loop, d time.Duration, f func()) {
	c.timer = l.After(d, func() {
		c.timer = nil
		if left := l.Until(c.due); left > 0 {
			c.arm(l, left, f)
			return
		}
		c.set = false
		f()
	})
}

// stop stops the timer.
func (c *clock) stop() {
	c.timer.Stop()
	c.timer, c.set = nil, false
}
