package connectx

import (
	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// Registers of ACCESS_REG.
const (
	regPCAP            = 0x5001
	regPMTU            = 0x5003
	regPTYS            = 0x5004
	regPAOS            = 0x5006
	regPFCC            = 0x5007
	regPPCNT           = 0x5008
	regPVLC            = 0x500f
	regNodeDescription = 0x6001
	regHostEndianness  = 0x7004
)

// A register is a register of ACCESS_REG.
type register struct {
	size  int
	read  func(d *Device, b []byte)
	write func(d *Device, b []byte) error // nil if read-only
}

var registers = map[uint64]register{
	regPCAP:            {prm.PCAP.Size, (*Device).readPCAP, (*Device).writePCAP},
	regPMTU:            {prm.PMTU.Size, (*Device).readPMTU, (*Device).writePMTU},
	regPTYS:            {prm.PTYS.Size, (*Device).readPTYS, ignored},
	regPAOS:            {prm.PAOS.Size, (*Device).readPAOS, ignored},
	regPFCC:            {prm.PFCC.Size, (*Device).readPFCC, (*Device).writePFCC},
	regPPCNT:           {prm.PPCNT.Size, func(*Device, []byte) {}, nil},
	regPVLC:            {prm.PVLC.Size, (*Device).readPVLC, nil},
	regNodeDescription: {64, (*Device).readDescription, (*Device).writeDescription},
	regHostEndianness:  {16, func(*Device, []byte) {}, ignored},
}

// ignored ignores a store to a register without effect here: the speed of a
// link, its administrative state, the byte order of the host.
func ignored(*Device, []byte) error { return nil }

func (d *Device) accessRegister(in, out []byte) error {
	r, ok := registers[prm.AccessRegisterInRegisterID.Get(in)]
	write := prm.CmdOpMod.Get(in) == 0
	switch {
	case !ok || write && r.write == nil:
		return refuse(statusBadParam, reasonRegister)
	case prm.CmdOpMod.Get(in) > 1:
		return refuse(statusBadParam, reasonOpMod)
	}
	b := make([]byte, r.size)
	copy(b, prm.AccessRegisterInRegisterData.Rest(in))
	if port := b[1]; r.read != nil && isPortRegister(prm.AccessRegisterInRegisterID.Get(in)) && port > 1 {
		return refuse(statusBadParam, reasonPort)
	}
	if write {
		if err := r.write(d, b); err != nil {
			return err
		}
	} else {
		r.read(d, b)
	}
	copy(prm.AccessRegisterOutRegisterData.Rest(out), b)
	return nil
}

// isPortRegister reports whether a register has the port's number in its second
// byte.
func isPortRegister(id uint64) bool { return id>>12 == 5 }

// mtu returns the port's current MTU and the maximum. That of an Ethernet is
// the whole frame, including its check sequence.
func (d *Device) mtu() (now, most uint64) {
	most = 4096
	if d.config.LinkLayer == Ethernet {
		most = maxMTU
	}
	if now = uint64(d.port.pmtu); now == 0 {
		now = min(most, 4096)
	}
	return now, most
}

// limitFrames passes the port's MTU to the engine.
func (d *Device) limitFrames() {
	const checkSequence = 4
	if now, _ := d.mtu(); d.config.LinkLayer == Ethernet {
		d.hca.SetFrameLimit(int(now) - checkSequence)
	}
}

func (d *Device) readPMTU(b []byte) {
	now, most := d.mtu()
	prm.PMTUMaxMTU.Set(b, most)
	prm.PMTUAdminMTU.Set(b, now)
	prm.PMTUOperMTU.Set(b, now)
}

func (d *Device) writePMTU(b []byte) error {
	v := prm.PMTUAdminMTU.Get(b)
	const least = 64
	if _, most := d.mtu(); v < least || v > most {
		return refuse(statusBadParam, reasonSize)
	}
	d.port.pmtu = uint16(v)
	d.limitFrames()
	return nil
}

const (
	width4X   = 1 << 2
	speedEDR  = 1 << 5  // four lanes of 25 Gb/s each
	speed100G = 1 << 20 // 100GBASE-CR4

)

func (d *Device) readPTYS(b []byte) {
	if d.config.LinkLayer == Ethernet {
		prm.PTYSEthProtoCapability.Set(b, speed100G)
		prm.PTYSEthProtoAdmin.Set(b, speed100G)
		if d.hca.Up() {
			prm.PTYSEthProtoOper.Set(b, speed100G)
		}
		return
	}
	prm.PTYSIBLinkWidthCapability.Set(b, width4X)
	prm.PTYSIBProtoCapability.Set(b, speedEDR)
	prm.PTYSIBLinkWidthAdmin.Set(b, width4X)
	prm.PTYSIBProtoAdmin.Set(b, speedEDR)
	prm.PTYSIBLinkWidthOper.Set(b, width4X)
	prm.PTYSIBProtoOper.Set(b, speedEDR)
}

// readPVLC returns the virtual lanes 0 to 7.
func (d *Device) readPVLC(b []byte) {
	prm.PVLCVLHWCap.Set(b, 4)
	prm.PVLCVLAdmin.Set(b, 4)
	prm.PVLCVLOperational.Set(b, 4)
}

func (d *Device) readPAOS(b []byte) {
	prm.PAOSAdminStatus.Set(b, 1)
	prm.PAOSOperStatus.Set(b, 2)
	if d.hca.Up() {
		prm.PAOSOperStatus.Set(b, 1)
	}
}

func (d *Device) readPCAP(b []byte) { prm.PCAPPortCapabilityMask.Set(b, uint64(d.port.capMask)) }

func (d *Device) writePCAP(b []byte) error {
	mask := uint32(prm.PCAPPortCapabilityMask.Get(b))
	if mask&^changeableCapMask != 0 || d.config.LinkLayer != InfiniBand {
		return refuse(statusBadParam, reasonCapability)
	}
	d.port.capMask = mask
	return nil
}

// Pause frames can be configured, and have no effect: the network's ports do not run out of room.
func (d *Device) readPFCC(b []byte) { copy(b[2:], d.port.flowControl[2:]) }

func (d *Device) writePFCC(b []byte) error {
	copy(d.port.flowControl[:], b)
	return nil
}

func (d *Device) readDescription(b []byte) { copy(b, d.port.description[:]) }

func (d *Device) writeDescription(b []byte) error {
	copy(d.port.description[:], b)
	return nil
}
