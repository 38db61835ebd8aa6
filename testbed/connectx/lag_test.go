package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// onEthernet returns objects of an Ethernet device with lowered capabilities.
func onEthernet(t *testing.T, lowered ...Capability) *objects {
	t.Helper()
	return newObjects(t, func(c *Config) { c.LinkLayer, c.Capabilities = Ethernet, lowered })
}

// through returns a function that sets the LAG port of a queue pair, with a mask of optional parameters.
func through(qpn, port uint64, mask engine.Param) func([]byte) {
	return func(in []byte) {
		prm.ModifyQPInQPN.Set(in, qpn)
		prm.ModifyQPInOptParamMask.Set(in, uint64(mask))
		prm.QPCMTU.Set(prm.ModifyQPInQPC.Bytes(in), 3)
		prm.QPCLAGTXPortAffinity.Set(prm.ModifyQPInQPC.Bytes(in), port)
	}
}

// lagPortOf returns the LAG port in the context of a queue pair.
func (o *objects) lagPortOf(qpn uint64) uint64 {
	o.t.Helper()
	return prm.QPCLAGTXPortAffinity.Get(prm.QueryQPOutQPC.Bytes(o.run(0x50b, 0, set(prm.QueryQPInQPN, qpn))))
}

// TestLAGPort changes the LAG port of queue pairs in each transition that may do so.
func TestLAGPort(t *testing.T) {
	o := onEthernet(t)
	for _, s := range []engine.Service{engine.ServiceRC, engine.ServiceUC, engine.ServiceUD, engine.ServiceDCI} {
		qpn := uint64(o.createQP(s))
		for i, step := range []struct {
			opcode     uint16
			port, want uint64
			mask       engine.Param
		}{
			{0x502, 1, 1, 0},
			{0x50e, 2, 1, 0},
			{0x50e, 2, 2, engine.ParamLAGPort},
			{0x50e, 1, 1, engine.ParamLAGPort},
			{0x503, 2, 2, engine.ParamLAGPort},
			{0x504, 1, 2, engine.ParamLAGPort}, // not a parameter of this transition
			{0x505, 1, 2, 0},
			{0x505, 1, 1, engine.ParamLAGPort},
			{0x505, 0, 0, engine.ParamLAGPort},
		} {
			o.run(step.opcode, 0, through(qpn, step.port, step.mask))
			if got := o.lagPortOf(qpn); got != step.want {
				t.Errorf("service %#x, step %d: the port is %d, want %d", s, i, got, step.want)
			}
		}
		o.refused(0x505, 0, statusBadParam, reasonCapability, through(qpn, 3, engine.ParamLAGPort))
	}
}

// TestTISPort changes the parameters of a TIS, each by its bit.
func TestTISPort(t *testing.T) {
	o := onEthernet(t)
	create := func(port uint64) func([]byte) {
		return func(in []byte) {
			c := prm.CreateTISInTISC.Bytes(in)
			prm.TISCTransportDomain.Set(c, 9)
			prm.TISCLAGTXPortAffinity.Set(c, port)
			prm.TISCStrictLAGTXPortAffinity.Set(c, 1)
			prm.TISCPrio.Set(c, 6)
		}
	}
	o.refused(0x912, 0, statusBadParam, reasonCapability, create(3))
	tis := prm.CreateTISOutTISN.Get(o.run(0x912, 0, create(1)))
	check := func(port, strict, prio uint64) {
		t.Helper()
		c := prm.QueryTISOutTISC.Bytes(o.run(0x915, 0, set(prm.QueryTISInTISN, tis)))
		got := [4]uint64{prm.TISCLAGTXPortAffinity.Get(c), prm.TISCStrictLAGTXPortAffinity.Get(c), prm.TISCPrio.Get(c),
			prm.TISCTransportDomain.Get(c)}
		if want := [4]uint64{port, strict, prio, 9}; got != want {
			t.Errorf("port, strictness, priority and domain are %v, want %v", got, want)
		}
	}
	check(1, 1, 6)
	change := func(bit prm.Field, port uint64) func([]byte) {
		return func(in []byte) {
			prm.ModifyTISInTISN.Set(in, tis)
			bit.Set(in, 1)
			c := prm.ModifyTISInTISC.Bytes(in)
			prm.TISCLAGTXPortAffinity.Set(c, port)
			prm.TISCPrio.Set(c, 3)
		}
	}
	o.run(0x913, 0, change(prm.ModifyTISInBitmaskLAGTXPortAffinity, 2))
	check(2, 1, 6)
	o.run(0x913, 0, change(prm.ModifyTISInBitmaskStrictLAGTXPortAffinity, 1))
	check(2, 0, 6)
	o.run(0x913, 0, change(prm.ModifyTISInBitmaskPrio, 1))
	check(2, 0, 3)
	o.refused(0x913, 0, statusBadParam, reasonCapability, change(prm.ModifyTISInBitmaskLAGTXPortAffinity, 3))
	o.refused(0x915, 0, statusBadResource, reasonParam, set(prm.QueryTISInTISN, tis+1))
}

// TestQueryLAG checks the state of the LAG, which any user may ask for.
func TestQueryLAG(t *testing.T) {
	o := onEthernet(t)
	u := o.newUser()
	c := prm.QueryLAGOutLAGC.Bytes(o.run(0x842, 0, u.as(nil)))
	got := [3]uint64{prm.LAGCState.Get(c), prm.LAGCTXRemapAffinity1.Get(c), prm.LAGCTXRemapAffinity2.Get(c)}
	if want := [3]uint64{lagActive, 1, 2}; got != want {
		t.Errorf("the state and the ports used are %v, want %v", got, want)
	}
	page := o.device.caps.page(CapGeneral, true)
	if prm.HCACapLAGDCT.Get(page) != lagDCTs { // programs do not use DC in a LAG without it
		t.Errorf("lag_dct is %d", prm.HCACapLAGDCT.Get(page))
	}
}

// outsideOfLAG checks that QUERY_LAG, from any user, returns that there is no LAG.
func (o *objects) outsideOfLAG() {
	o.t.Helper()
	u := o.newUser()
	for _, fill := range []func([]byte){nil, u.as(nil)} {
		if s := prm.LAGCState.Get(prm.QueryLAGOutLAGC.Bytes(o.run(0x842, 0, fill))); s != 0 {
			o.t.Errorf("the state outside of a LAG is %d", s)
		}
	}
}

// TestNoLAG checks devices without link aggregation: on InfiniBand, and those that lack a capability.
func TestNoLAG(t *testing.T) {
	one := Capability{CapGeneral, prm.HCACapNumLAGPorts, 1}
	unbound := Capability{CapGeneral, prm.HCACapLAGTXPortAffinity, 0}
	for name, o := range map[string]*objects{"one port": onEthernet(t, one), "no choice": onEthernet(t, unbound)} {
		t.Run(name, func(t *testing.T) {
			o.outsideOfLAG()
			o.refused(0x502, 0, statusBadParam, reasonCapability, through(uint64(o.createQP(engine.ServiceRC)), 1, 0))
		})
	}
	ib := newObjects(t, nil)
	ib.outsideOfLAG()
	ib.refused(0x502, 0, statusBadParam, reasonCapability, through(uint64(ib.createQP(engine.ServiceRC)), 1, 0))

	o := onEthernet(t, Capability{CapGeneral, prm.HCACapRTS2RTSLAGTXPortAffinity, 0},
		Capability{CapGeneral, prm.HCACapInit2LAGTXPortAffinity, 0})
	o.refused(0x505, 0, statusBadParam, reasonCapability, through(o.ready(engine.ServiceRC), 1, engine.ParamLAGPort))
	o.refused(0x50e, 0, statusBadParam, reasonCapability, through(o.inInit(engine.ServiceRC), 1, engine.ParamLAGPort))
}
