package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// newEngine returns the HCA for the commands.
func (d *Device) newEngine() *engine.HCA {
	c := engine.Config{
		Loop: d.config.Loop, Memory: memory{d}, Events: events{d}, Now: d.ticks,
		CQEVersion: int(d.caps.general(prm.HCACapCQEVersion)),
		Limits: engine.Limits{
			PDs: d.number(prm.HCACapLogMaxPD), XRCDs: d.number(prm.HCACapLogMaxXRCD), MKeys: d.number(prm.HCACapLogMaxMKey),
			CQs: d.number(prm.HCACapLogMaxCQ), QPs: d.number(prm.HCACapLogMaxQP), SRQs: d.number(prm.HCACapLogMaxSRQ),
			LogCQSize: uint8(d.caps.general(prm.HCACapLogMaxCQSize)), LogWQSize: uint8(d.caps.general(prm.HCACapLogMaxQPSize)),
			Groups: d.number(prm.HCACapLogMaxMCG), GroupQPs: int(d.caps.general(prm.HCACapMaxQPMCG)),
			PKeys: d.pkeys(),
		},
		StaleSRQN: d.config.StaleSRQN, ShuffleRQ: d.config.ShuffleRQ, ShuffleSRQ: d.config.ShuffleSRQ,
		Reorder: d.config.Reorder,
		DeviceMemory: engine.DeviceMemory{Start: d.config.deviceMemoryStart(), Bytes: make([]byte, deviceMemory),
			Operations: d.config.memoryOpsStart()},
		Strict: !d.config.Lenient, Violation: d.config.Violation, Tracer: d.config.Tracer,
	}
	if d.config.LinkLayer == Ethernet {
		c.LinkLayer = engine.Ethernet
		c.Limits.GIDs = int(prm.RoCECapRoCEAddressTableSize.Get(d.caps.page(CapRoCE, true)))
		c.Limits.EthernetQueues = d.number(prm.HCACapLogMaxRQ)
		c.Limits.FlowTables = 1 << logFlowTables
	} else {
		c.Limits.GIDs = d.gids()
	}
	if d.config.ODP {
		c.Pager = pager{d}
	}
	if c.Violation == nil {
		c.Violation = func(engine.Violation) {}
	}
	return engine.New(c)
}

// number returns how many objects a capability permits.
func (d *Device) number(f prm.Field) int { return 1 << d.caps.general(f) }

// Engine returns the device's queues and port. The port must be connected to a
// link.
func (d *Device) Engine() *engine.HCA { return d.hca }

// memory is the machine's memory for the engine.
type memory struct{ d *Device }

// View implements engine.Memory.
func (m memory) View(addr uint64, n int) ([]byte, error) { return m.d.view(addr, n) }

// events converts events of the engine to event queue entries.
type events struct{ d *Device }

// Completion implements engine.Events.
func (e events) Completion(cq *engine.CQ) {
	event := newEvent(eventCompletion)
	prm.EQECQN.Set(event, uint64(cq.Number))
	e.d.postTo(cq.EQN, event)
}

// Async implements engine.Events.
func (e events) Async(a engine.AsyncEvent) {
	event := newEvent(uint8(a.Type))
	switch a.Type {
	case engine.EventPort:
		prm.EQESubType.Set(event, uint64(a.SubType))
		prm.EQEPort.Set(event, uint64(a.Number))
	case engine.EventCQError:
		prm.EQEErrorCQN.Set(event, uint64(a.Number))
		prm.EQEErrorSyndrome.Set(event, uint64(a.Syndrome))
	default:
		prm.EQEQueueType.Set(event, uint64(a.Queue))
		prm.EQEQPN.Set(event, uint64(a.Number))
	}
	e.d.postAll(event, uint8(a.Type))
}

// pager converts page faults to event queue entries.
type pager struct{ d *Device }

// PageFault implements engine.Pager.
func (p pager) PageFault(f engine.PageFault) bool {
	event := newEvent(eventPageFault)
	prm.EQEFaultType.Set(event, uint64(f.Type))
	prm.EQEFaultLength.Set(event, uint64(f.Length))
	if f.RDMA {
		prm.EQESubType.Set(event, faultOfRDMA)
		prm.EQEFaultRKey.Set(event, uint64(f.RKey))
		prm.EQEFaultOpLength.Set(event, uint64(f.OpLength))
		prm.EQEFaultVA.Set(event, f.VA)
		prm.EQEFaultNumber.Set(event, uint64(f.QPN))
	} else {
		prm.EQEFaultCommitted.Set(event, uint64(f.Committed))
		prm.EQEFaultWQEIndex.Set(event, uint64(f.Index))
		prm.EQEFaultWQEToken.Set(event, uint64(f.QPN))
		prm.EQEFaultNumber.Set(event, uint64(f.Queue))
	}
	return p.d.postAll(event, eventPageFault)
}

// faultOfRDMA is the sub-type of a peer's access.
const faultOfRDMA = 1

// resumePageFault ends a page fault. The token is the number of the queue pair
// that has stopped.
func (d *Device) resumePageFault(in, out []byte) error {
	if !d.config.ODP {
		return refuse(statusBadOpcode, reasonOpcode)
	}
	d.hca.ResumePageFault(uint8(prm.PageFaultResumeInType.Get(in)), get32(prm.PageFaultResumeInToken, in),
		prm.PageFaultResumeInError.Is(in))
	return nil
}
