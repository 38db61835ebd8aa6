package connectx

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// pma reads an attribute of performance management of the port.
func (v *driver) pma(attribute uint16) []byte {
	v.t.Helper()
	out := v.run(0x50d, 3, func(in []byte) {
		prm.MADIFCInPort.Set(in, 1)
		mad := prm.MADIFCInMAD.Bytes(in)
		mad[madClass], mad[madMethod], mad[madData+pmaPort] = classCounters, methodGet, 1
		binary.BigEndian.PutUint16(mad[madAttribute:], attribute)
		mad[madData+100] = 0xee
	})
	mad := prm.MADIFCOutResponseMADPacket.Bytes(out)
	if status := binary.BigEndian.Uint16(mad[madStatus:]); status != 0 || mad[madData+100] != 0 {
		v.t.Errorf("attribute %#x: status %#x, % x", attribute, status, mad)
	}
	return mad[madData:]
}

// TestPMA checks the counters that a driver reads with management datagrams.
func TestPMA(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	be := binary.BigEndian
	if d := v.pma(pmaClassPortInfo); be.Uint16(d) != 0x0101 || be.Uint16(d[2:]) != 0x0200 {
		t.Errorf("the class is % x", d[:8])
	}
	group := roce.Packet{Opcode: roce.UD.Of(roce.SendOnly), DestQPN: 0xffffff}
	one := roce.Packet{Opcode: roce.UD.Of(roce.SendOnly), DestQPN: 7, Payload: make([]byte, 100)}
	for _, p := range []roce.Packet{one, group, group} {
		v.loop.Run(func() { v.device.hca.ReceivePacket(&p) })
	}
	for range 2 {
		v.loop.Run(func() { v.device.SetPort(false) })
		v.loop.Run(func() { v.device.SetPort(true) })
	}
	const header = 8 + 12 + 8 + 4
	const words = (3*header + 100) / 4
	if d := v.pma(pmaCounters); d[7] != 2 || be.Uint32(d[24:]) != 0 || be.Uint32(d[28:]) != words ||
		be.Uint32(d[32:]) != 0 || be.Uint32(d[36:]) != 3 {
		t.Errorf("the counters are % x", d[:44])
	}
	if d := v.pma(pmaExtended); be.Uint64(d[8:]) != 0 || be.Uint64(d[16:]) != words || be.Uint64(d[32:]) != 3 ||
		be.Uint64(d[48:]) != 1 || be.Uint64(d[64:]) != 2 {
		t.Errorf("the extended counters are % x", d[:72])
	}
	if out := v.run(0x770, 0, nil); prm.QueryVportCounterOutReceivedIBUnicastPackets.Get(out) != 1 ||
		prm.QueryVportCounterOutReceivedIBMulticastPackets.Get(out) != 2 ||
		prm.QueryVportCounterOutReceivedIBMulticastOctets.Get(out) != 2*header {
		t.Errorf("the vport's counters are % x", out)
	}
}
