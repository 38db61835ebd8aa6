package transport

import (
	"github.com/goverbs/goverbs/testbed/connectx/loop"
	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// A Type is the service of an endpoint.
type Type uint8

const (
	RC Type = iota
	UC
	UD
	XRCInitiator // sends only
	XRCTarget    // receives only
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

// Config is what an endpoint needs to know of its queue pair.
type Config struct {
	Type Type
	QPN  uint32
	// SourceQPN is the sender that a datagram names; 0: QPN.
	SourceQPN uint32
	DestQPN   uint32
	PKey      uint16
	QKey      uint32 // UD
	MTU       int    // of the path, in bytes: 256 to 4096
	Path      Path
	AltPath   Path
	Migration MigrationState

	SendPSN uint32 // of the first packet after RTS was entered from RTR
	RecvPSN uint32 // of the first packet to come, after RTR was entered

	RetryCount  uint8 // 0 to 7
	RNRRetry    uint8 // 0 to 7; 7: for ever
	AckTimeout  uint8 // 4.096 µs times two to this power; 0: none
	MinRNRTimer uint8 // code of the time that a peer is told to wait
	MaxInitiate int   // READs and atomics that may be under way
	MaxRespond  int   // READs and atomics of the peer that are remembered
}

// An Endpoint is the protocol of one queue pair. Its methods are for steps of
// the loop.
type Endpoint struct {
	loop   *loop.Loop
	port   Port
	queues Queues
	config Config
	state  State
}

// New makes an endpoint in state Reset.
func New(l *loop.Loop, port Port, queues Queues, c Config) *Endpoint {
	return &Endpoint{loop: l, port: port, queues: queues, config: c}
}

// Modify replaces the configuration. What is under way goes on by the new one;
// PSNs count when SetState enters RTR and RTS.
func (e *Endpoint) Modify(c Config) { e.config = c }

// Config is the configuration as it is now: the migration may have changed it.
func (e *Endpoint) Config() Config { return e.config }

// State is the state.
func (e *Endpoint) State() State { return e.state }

// SetState moves the endpoint to another state, which is the owner's right to
// check. Reset, Err and SQE stop what is under way: see TakeBack.
func (e *Endpoint) SetState(s State) { e.state = s }

// TakeBack returns the requests that had been taken from Queues and are not
// done, in order, and the receive request that a message had taken, or nil.
// They are the caller's again. It is for the states Reset, Err and SQE.
func (e *Endpoint) TakeBack() ([]*Request, *Receive) { return nil, nil }

// Kick says that requests were posted.
func (e *Endpoint) Kick() {}

// Receive is given a packet for this endpoint. The endpoint may keep its payload
// until the step ends.
func (e *Endpoint) Receive(p *roce.Packet) {}

// PSN is the number of the next packet to send and of the next to come.
func (e *Endpoint) PSN() (send, recv uint32) { return 0, 0 }

// sending is what an endpoint knows of a request that it has taken.
type sending struct{}
