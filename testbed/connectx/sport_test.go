package connectx

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// ready creates a queue pair in state RTS.
func (o *objects) ready(service engine.Service) uint64 {
	o.t.Helper()
	qpn := uint64(o.createQP(service))
	for _, opcode := range []uint16{0x502, 0x503, 0x504} {
		o.run(opcode, 0, func(in []byte) {
			prm.ModifyQPInQPN.Set(in, qpn)
			prm.QPCMTU.Set(prm.ModifyQPInQPC.Bytes(in), 3)
		})
	}
	return qpn
}

// sport returns a function that changes the UDP source port of a queue pair.
func sport(qpn, port uint64) func([]byte) {
	return func(in []byte) {
		prm.ModifyQPInQPN.Set(in, qpn)
		prm.ModifyQPInOptMask9532.Set(in, uint64(engine.ParamUDPSport)>>32)
		prm.ADSUDPSport.Set(prm.QPCPrimary.Bytes(prm.ModifyQPInQPC.Bytes(in)), port)
	}
}

// TestUDPSourcePort checks that RTS2RTS_QP changes the source port of packets with RoCE, and nothing else.
func TestUDPSourcePort(t *testing.T) {
	o := newObjects(t, func(c *Config) { c.LinkLayer = Ethernet })
	rc, ud := o.ready(engine.ServiceRC), o.ready(engine.ServiceUD)
	before, err := o.device.hca.QueryQP(uint32(rc))
	if err != nil {
		t.Fatal(err)
	}
	o.run(0x505, 0, sport(rc, 0xd903))
	path := prm.QPCPrimary.Bytes(prm.QueryQPOutQPC.Bytes(o.run(0x50b, 0, set(prm.QueryQPInQPN, rc))))
	if got := prm.ADSUDPSport.Get(path); got != 0xd903 {
		t.Errorf("the source port is %#x", got)
	}
	after, err := o.device.hca.QueryQP(uint32(rc))
	if before.Primary.UDPSport = 0xd903; err != nil || before.Primary != after.Primary {
		t.Errorf("the path is %+v, want %+v: %v", after.Primary, before.Primary, err)
	}
	o.refused(0x505, 0, statusBadParam, reasonParam, sport(ud, 0xd903))
	o.refused(0x505, 0, statusBadParam, reasonCapability, func(in []byte) {
		sport(rc, 0xd903)(in)
		prm.ModifyQPInOptMask9532.Set(in, 1<<40)
	})
}

// TestNoUDPSourcePort checks devices without the capability: on InfiniBand, and older ones.
func TestNoUDPSourcePort(t *testing.T) {
	for name, change := range map[string]func(*Config){"InfiniBand": nil, "older": func(c *Config) {
		c.LinkLayer = Ethernet
		c.Capabilities = []Capability{{CapGeneral, prm.HCACapRTS2RTSQPUDPSport, 0}}
	}} {
		t.Run(name, func(t *testing.T) {
			o := newObjects(t, change)
			o.refused(0x505, 0, statusBadParam, reasonCapability, sport(o.ready(engine.ServiceRC), 0xd903))
		})
	}
}
