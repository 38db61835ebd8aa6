package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// TestPortEvents checks that each change of the port has an event, through
// several pages of a ring, and an interrupt if the queue is armed.
func TestPortEvents(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	const logSize = 7
	eqn, ring := v.createEQ(logSize, 1<<eventPort, 3)
	for i := range 300 {
		up := i%2 == 1
		v.loop.Run(func() {
			v.device.SetPort(up)
			v.device.SetPort(up) // no change, no event
		})
		e := v.event(ring, logSize, i)
		if e == nil || v.event(ring, logSize, i+1) != nil {
			t.Fatalf("event %d does not exist, or the next one does", i)
		}
		want := uint64(stateDown)
		if up {
			want = stateActive
		}
		if prm.EQEType.Get(e) != eventPort || prm.EQESubType.Get(e) != want || prm.EQEPort.Get(e) != 1 {
			t.Fatalf("event %d: type %#x, sub-type %d, port %d", i, prm.EQEType.Get(e), prm.EQESubType.Get(e),
				prm.EQEPort.Get(e))
		}
		v.arm(eqn, uint32(i+1), false)
	}
	if len(v.host.interrupts) != 0 {
		t.Errorf("%d interrupts of a queue that was never armed", len(v.host.interrupts))
	}
	v.reported(0)
}

// TestArming checks that a queue raises one interrupt each time it is armed, at
// once if it has events.
func TestArming(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	eqn, _ := v.createEQ(4, 1<<eventPort, 3)
	toggle := func() { v.loop.Run(func() { v.device.SetPort(!v.device.Engine().Up()) }) }
	for i, step := range []struct {
		do   func()
		want int
	}{
		{func() { v.arm(eqn, 0, true) }, 0},
		{toggle, 1},
		{toggle, 1},
		{func() { v.arm(eqn, 1, true) }, 2}, // one event was not consumed
		{func() { v.arm(eqn, 2, true) }, 2},
		{toggle, 3},
		{func() { v.arm(eqn, 3, false) }, 3},
		{toggle, 3},
	} {
		if step.do(); len(v.host.interrupts) != step.want {
			t.Errorf("step %d: %d interrupts, want %d", i, len(v.host.interrupts), step.want)
		}
	}
}

// TestOverrun checks that a full queue gets no more events, reports its status,
// and that the device reports it once.
func TestOverrun(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	eqn, ring := v.createEQ(1, 1<<eventPort, 0)
	for range 5 {
		v.loop.Run(func() { v.device.SetPort(!v.device.Engine().Up()) })
	}
	if v.event(ring, 1, 2) != nil {
		t.Error("an event overwrote one that the host has not consumed")
	}
	query := func() uint64 {
		out := v.run(0x303, 0, func(in []byte) { prm.QueryEQInEQNumber.Set(in, uint64(eqn)) })
		return prm.EQCStatus.Get(prm.QueryEQOutEQC.Bytes(out))
	}
	if got := query(); got != eqOverflow {
		t.Errorf("status %d", got)
	}
	v.reported(1)

	eqn, ring = v.createEQ(4, 1<<eventPort, 0)
	if got := query(); got != 0 {
		t.Errorf("status %d of a new queue", got)
	}
	v.loop.Run(func() {
		if !v.device.OverrunEQ(eqn) || v.device.OverrunEQ(63) {
			t.Error("OverrunEQ found the wrong queues")
		}
		v.device.SetPort(!v.device.Engine().Up())
	})
	if got := query(); got != eqOverflow || v.event(ring, 4, 0) != nil {
		t.Errorf("status %d after OverrunEQ, or an event came", got)
	}
}

// TestEQRefusals checks attributes that are refused.
func TestEQRefusals(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	v.createEQ(4, 1<<eventCommand, 0)
	context := func(change func(c []byte)) func(in []byte) {
		return func(in []byte) {
			c := prm.CreateEQInEQC.Bytes(in)
			prm.EQCUARPage.Set(c, uint64(v.uar))
			change(c)
		}
	}
	v.refused(0x301, 0, statusLimit, reasonSize, context(func(c []byte) { prm.EQCLogEQSize.Set(c, 23) }))
	v.refused(0x301, 0, statusBadParam, reasonVector, context(func(c []byte) { prm.EQCIntr.Set(c, vectors) }))
	v.refused(0x301, 0, statusBadResource, reasonUAR, context(func(c []byte) { prm.EQCUARPage.Set(c, 5) }))
	v.refused(0x301, 0, statusBadParam, reasonBuffer, context(func(c []byte) {}))
	v.refused(0x301, 0, statusBusy, reasonEvents, func(in []byte) {
		context(func(c []byte) {})(in)
		prm.CreateEQInEventBitmask.Set(in, 1<<eventCommand)
	})
	v.refused(0x302, 0, statusBadResource, reasonUnknown, func(in []byte) { prm.DestroyEQInEQNumber.Set(in, 40) })
	v.refused(0x803, 0, statusBusy, reasonInUse, func(in []byte) { prm.DeallocUARInUAR.Set(in, uint64(v.uar)) })
}

// TestEQPages checks that event queues count against the limit of all page
// lists.
func TestEQPages(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	const most = 512 << 20 / 8
	v.loop.Run(func() {
		if err := v.device.hca.ReservePages(most - 4); err != nil {
			t.Error(err)
		}
	})
	create := func(in []byte) {
		prm.EQCUARPage.Set(prm.CreateEQInEQC.Bytes(in), uint64(v.uar))
		prm.EQCLogEQSize.Set(prm.CreateEQInEQC.Bytes(in), 8) // four pages
	}
	try := func(want status) uint64 {
		t.Helper()
		out := v.try(0x301, 0, 8*4, 0, create)
		if s := status(prm.CmdStatus.Get(out)); s != want {
			t.Errorf("%s, want %#x", hexStatus(out), want)
		}
		return prm.CreateEQOutEQNumber.Get(out)
	}
	for range 3 {
		first := try(statusOK)
		try(statusLimit)
		v.run(0x302, 0, func(in []byte) { prm.DestroyEQInEQNumber.Set(in, first) })
	}
	v.loop.Run(v.device.Reset)
	v.loop.Run(func() {
		if err := v.device.hca.ReservePages(most); err != nil {
			t.Errorf("after a reset: %v", err)
		}
	})
}

// TestEQDoorbells checks that invalid doorbells are reported and have no
// effect.
func TestEQDoorbells(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	eqn, _ := v.createEQ(4, 1<<eventPort, 0)
	v.arm(eqn, 5, true) // ahead of the producer
	v.arm(eqn+1, 0, true)
	v.arm(200, 0, true)
	v.reported(3)
	uar := v.uar
	v.uar = 4000 // not allocated
	v.arm(eqn, 0, true)
	v.reported(1)
	v.uar = uar
	v.loop.Run(func() { v.device.SetPort(false) })
	if len(v.host.interrupts) != 0 {
		t.Error("one of them armed the queue")
	}
}

// TestEQNumbers checks the maximum number of queues, and that numbers are
// reused.
func TestEQNumbers(t *testing.T) {
	v := newDriver(t, func(c *Config) { c.Capabilities = []Capability{{CapGeneral, prm.HCACapLogMaxEQ, 2}} })
	v.boot()
	for range 3 {
		v.createEQ(1, 0, 0)
	}
	if got := len(v.device.EQs()); got != 3 {
		t.Fatalf("%d queues", got)
	}
	page := v.host.alloc(1)
	one := func(in []byte) {
		prm.EQCUARPage.Set(prm.CreateEQInEQC.Bytes(in), uint64(v.uar))
		prm.CreateEQInPAS.Set(in, page)
	}
	out := v.try(0x301, 0, 8, 0, one)
	if status(prm.CmdStatus.Get(out)) != statusLimit {
		t.Errorf("a fourth queue: %s", hexStatus(out))
	}
	v.run(0x302, 0, func(in []byte) { prm.DestroyEQInEQNumber.Set(in, 2) })
	if got := prm.CreateEQOutEQNumber.Get(v.list(0x301, 0, 8, 0, one)); got != 2 {
		t.Errorf("the new queue has number %d", got)
	}
}
