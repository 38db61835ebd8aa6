package fakemlx5

import (
	"errors"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/uapi"
)

// A Config describes an adapter.
type Config struct {
	Loop       *loop.Loop
	InfiniBand bool // the link layer; else Ethernet
	MAC        [6]byte
	LID        uint16
	CQEVersion uint8
	// Resolve returns the MAC address of the peer with a GID, on Ethernet. If it is nil, the
	// adapter itself is the peer.
	Resolve func(gid [16]byte) ([6]byte, bool)
	// Violation is called in the loop when a program breaks one of the rules for adapters. If it
	// is nil, rules are not checked.
	Violation func(engine.Violation)
	// Program adds the rules that only programs can break, and the call stacks of posts: see
	// engine.Config.
	Program bool
	Peer    func(*transport.Path) *engine.HCA // see engine.Config
	// Shared, if not nil, is called with each range of the process's memory that the adapter may
	// use from now on.
	Shared func(addr, n uint64)
	// Problem is called in the loop when the adapter refuses a command that the kernel has
	// accepted.
	Problem func(error)
}

// An Adapter is a ConnectX with one port, which is up.
type Adapter struct {
	HCA *engine.HCA

	cfg    Config
	loop   *loop.Loop
	memory memory
	// cqs has the kernel's part of each CQ.
	cqs      map[uint32]cqOwner
	kernels  map[*Kernel]bool
	pd       uint32 // of the kernel's own objects; 0 if there is none yet
	limits   Limits
	pinned   uint64 // bytes
	reserved uint32 // the last block of reserved QP numbers
}

type cqOwner struct {
	k      *Kernel
	handle uint32
}

// NewAdapter returns an adapter that is not attached to a network: it can send only to itself.
func NewAdapter(cfg Config) *Adapter {
	a := &Adapter{cfg: cfg, loop: cfg.Loop, cqs: map[uint32]cqOwner{}, kernels: map[*Kernel]bool{}}
	layer := engine.Ethernet
	if cfg.InfiniBand {
		layer = engine.InfiniBand
	}
	a.memory.other.loop = a.loop
	a.loop.Run(func() { // New reads the loop's clock, too
		a.HCA = engine.New(engine.Config{Loop: a.loop, Memory: &a.memory, Events: a, LinkLayer: layer,
			CQEVersion: int(cfg.CQEVersion), WholeBursts: true, Strict: cfg.Violation != nil, Violation: cfg.Violation,
			Program: cfg.Program, Peer: cfg.Peer})
		a.HCA.SetLID(cfg.LID)
		a.HCA.SetMAC(cfg.MAC)
		a.HCA.SetLink(noLink{})
		a.HCA.SetUp(true)
	})
	return a
}

// SetGIDs sets the first entries of the GID table.
func (a *Adapter) SetGIDs(gids []uapi.IbUverbsGidEntry) error {
	versions := map[uint32]roce.Version{uapi.IB_UVERBS_GID_TYPE_IB: roce.InfiniBand,
		uapi.IB_UVERBS_GID_TYPE_ROCE_V1: roce.V1, uapi.IB_UVERBS_GID_TYPE_ROCE_V2: roce.V2}
	var errs []error
	a.loop.Run(func() {
		for i, g := range gids {
			errs = append(errs,
				a.HCA.SetGID(i, engine.GIDEntry{GID: g.Gid, Version: versions[g.GidType], MAC: a.HCA.MAC()}))
		}
	})
	return errors.Join(errs...)
}

// View returns n bytes of the process's memory that the adapter may use.
func (a *Adapter) View(addr uint64, n int) ([]byte, error) { return a.memory.View(addr, n) }

// Completion implements engine.Events.
func (a *Adapter) Completion(q *engine.CQ) {
	number := q.Number
	a.deliver(func() {
		if o, ok := a.cqs[number]; ok {
			a.check(o.k.Complete(o.handle))
		}
	})
}

// asyncEvents has the kernel's types of the events of queues.
var asyncEvents = map[engine.EventType]uint32{
	engine.EventPathMigrated:    6, // IB_EVENT_PATH_MIG; enum ib_event_type is not part of the ABI's headers
	engine.EventEstablished:     4,
	engine.EventSQDrained:       5,
	engine.EventCQError:         0,
	engine.EventQPFatal:         1,
	engine.EventMigrationFailed: 7,
	engine.EventQPRequest:       2,
	engine.EventQPAccess:        3,
	engine.EventSRQCatastrophic: 14,
	engine.EventLastWQE:         16,
	engine.EventSRQLimit:        15,
}

const (
	asyncPortActive = 9
	asyncPortError  = 10
)

// Async implements engine.Events.
func (a *Adapter) Async(e engine.AsyncEvent) { a.deliver(func() { a.async(e) }) }

// deliver delivers an event in a separate step: a command may be running, which holds the fake
// kernel's lock.
func (a *Adapter) deliver(f func()) {
	if a.loop.Seeded() {
		a.loop.Deliver(a, f)
	} else {
		a.loop.Post(f)
	}
}

func (a *Adapter) async(e engine.AsyncEvent) {
	for k := range a.kernels {
		switch e.Type {
		case engine.EventPort:
			t := uint32(asyncPortError)
			if e.SubType == engine.PortActive {
				t = asyncPortActive
			}
			a.check(k.Async(uint64(e.Number), t))
		default:
			for _, h := range k.handlesOf(e) {
				a.check(k.Async(k.UserHandle(h), asyncEvents[e.Type]))
			}
		}
	}
}

// macOf returns the MAC address of the peer with a GID: zero if the network has none.
func (a *Adapter) macOf(gid [16]byte) [6]byte {
	if a.cfg.Resolve == nil {
		return a.HCA.MAC()
	}
	mac, _ := a.cfg.Resolve(gid)
	return mac
}

// check reports an error of the device or of an event descriptor.
func (a *Adapter) check(err error) {
	if err != nil && a.cfg.Problem != nil {
		a.cfg.Problem(err)
	}
}

// kernelPD returns the PD of the kernel's own objects.
func (a *Adapter) kernelPD() uint32 {
	if a.pd == 0 {
		var err error
		a.pd, err = a.HCA.CreatePD()
		a.check(err)
	}
	return a.pd
}

// noLink loses all packets.
type noLink struct{}

func (noLink) Packet(*roce.Packet) {}
func (noLink) Frame([]byte)        {}
