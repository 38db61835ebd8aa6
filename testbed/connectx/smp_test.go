package connectx

import (
	"encoding/binary"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// smp reads an attribute of subnet management.
func (v *driver) smp(class, method byte, attribute uint16, modifier uint32) (status uint16, data []byte) {
	v.t.Helper()
	out := v.run(0x50d, 3, func(in []byte) {
		prm.MADIFCInPort.Set(in, 1)
		mad := prm.MADIFCInMAD.Bytes(in)
		mad[madClass], mad[madMethod] = class, method
		binary.BigEndian.PutUint16(mad[madAttribute:], attribute)
		binary.BigEndian.PutUint32(mad[madModifier:], modifier)
		for i := range mad[madData:] {
			mad[madData+i] = 0xee
		}
	})
	mad := prm.MADIFCOutResponseMADPacket.Bytes(out)
	if mad[madMethod] != method|madResponse {
		v.t.Errorf("the response's method is %#x", mad[madMethod])
	}
	return binary.BigEndian.Uint16(mad[madStatus:]), mad[madData : madData+64]
}

// TestSMP checks that subnet management packets return the same data as
// commands, and that other packets are refused.
func TestSMP(t *testing.T) {
	v := newDriver(t, func(c *Config) { c.LID, c.PCIDevice = 7, 0x1013 })
	v.boot()
	be := binary.BigEndian
	read := func(attribute uint16, modifier uint32) []byte {
		t.Helper()
		status, data := v.smp(classLIDRouted, methodGet, attribute, modifier)
		if status != 0 {
			t.Errorf("attribute %#x, %d: status %#x", attribute, modifier, status)
		}
		return data
	}
	if d := read(0x11, 0); d[3] != 1 || be.Uint64(d[12:]) != testGUID || be.Uint64(d[20:]) != testGUID ||
		be.Uint16(d[28:]) != 128 || be.Uint16(d[30:]) != 0x1013 || be.Uint32(d[36:])&0xffffff != 0x2c9 {
		t.Errorf("the node is % x", d)
	}
	if d := read(0x15, 1); be.Uint64(d[8:]) != 0xfe80<<48 || be.Uint16(d[16:]) != 7 || d[32]&15 != stateActive ||
		d[33]>>4 != physicalLinkUp || d[50] != 8 {
		t.Errorf("the port is % x", d)
	}
	v.loop.Run(func() { v.device.SetPort(false) })
	if d := read(0x15, 0); d[32]&15 != stateDown || be.Uint16(d[16:]) != 0 {
		t.Errorf("the port that is down is % x", d)
	}
	if d := read(0x14, 0); be.Uint64(d) != testGUID || be.Uint64(d[8:]) != 0 {
		t.Errorf("the GUIDs are % x", d)
	}
	if d := read(0x16, 0); be.Uint32(d) != defaultPKey<<16 {
		t.Errorf("the P_Keys are % x", d)
	}
	if d := read(0x16, 3); be.Uint32(d) != 0 {
		t.Errorf("the last P_Keys are % x", d)
	}
	if d := read(0x10, 0); string(d[:7]) != "goverbs" {
		t.Errorf("the description is %q", d)
	}
	for _, x := range []struct {
		class, method byte
		attribute     uint16
		modifier      uint32
		want          uint16
	}{
		{classDirected, methodGet, 0x15, 1, directionBit},
		{classLIDRouted, methodGet, 0x15, 2, badValue},
		{classLIDRouted, methodGet, 0x14, 1, badValue},
		{classLIDRouted, methodGet, 0x16, 4, badValue},
		{classLIDRouted, 2, 0x15, 1, badAttribute},
		{classLIDRouted, methodGet, 0x20, 0, badAttribute},
		{classCounters, methodGet, pmaCounters, 0, badValue}, // of port 0xee
		{classCounters, 2, pmaCounters, 0, badAttribute},
		{classCounters, methodGet, 0x15, 0, badValue},
	} {
		if got, _ := v.smp(x.class, x.method, x.attribute, x.modifier); got != x.want {
			t.Errorf("%+v: status %#x", x, got)
		}
	}
	v.refused(0x50d, 0, statusBadParam, reasonPort, func(in []byte) { prm.MADIFCInPort.Set(in, 2) })
}

// TestPCAP checks that the driver can change the port's capability mask by a
// register.
func TestPCAP(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	access := func(mod int, mask uint32) []byte {
		return v.try(0x805, mod, prm.PCAP.Size, prm.PCAP.Size, func(in []byte) {
			prm.AccessRegisterInRegisterID.Set(in, regPCAP)
			b := prm.AccessRegisterInRegisterData.Rest(in)
			prm.PCAPLocalPort.Set(b, 1)
			prm.PCAPPortCapabilityMask.Set(b, uint64(mask))
		})
	}
	const sm = 1 << 1
	for _, mask := range []uint32{sm, 0, sm} {
		out := access(0, mask)
		if s := prm.CmdStatus.Get(out); s != 0 {
			t.Fatalf("mask %#x: %s", mask, hexStatus(out))
		}
		if got := prm.PCAPPortCapabilityMask.Get(prm.AccessRegisterOutRegisterData.Rest(access(1, 0))); got != uint64(mask) {
			t.Errorf("mask %#x, want %#x", got, mask)
		}
	}
	if s := status(prm.CmdStatus.Get(access(0, 1<<31))); s != statusBadParam {
		t.Errorf("an invalid mask: status %#x", s)
	}
}

// TestPFCC checks that the driver reads the flow control that it has set, as for ethtool -A, and nothing after a reset.
func TestPFCC(t *testing.T) {
	v := newDriver(t, nil)
	v.boot()
	access := func(mod int, receive uint64) []byte {
		return v.try(0x805, mod, prm.PFCC.Size, prm.PFCC.Size, func(in []byte) {
			prm.AccessRegisterInRegisterID.Set(in, regPFCC)
			b := prm.AccessRegisterInRegisterData.Rest(in)
			prm.PFCCLocalPort.Set(b, 1)
			prm.PFCCPPRX.Set(b, receive)
		})
	}
	read := func() [2]uint64 {
		b := prm.AccessRegisterOutRegisterData.Rest(access(1, 0))
		return [2]uint64{prm.PFCCPPRX.Get(b), prm.PFCCPPTX.Get(b)}
	}
	for _, receive := range []uint64{0, 1} {
		if s := prm.CmdStatus.Get(access(0, receive)); s != 0 || read() != [2]uint64{receive, 0} {
			t.Errorf("after %d: status %#x, %v", receive, s, read())
		}
	}
	v.device.port.restart()
	if got := read(); got != [2]uint64{} {
		t.Errorf("after a reset: %v", got)
	}
}
