package connectx

import (
	"encoding/binary"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
)

// A management datagram, as in MAD_IFC.
const (
	madClass     = 1
	madMethod    = 3
	madStatus    = 4
	madAttribute = 16
	madModifier  = 20
	madData      = 64

	classLIDRouted = 0x01
	classDirected  = 0x81
	classCounters  = 0x04 // performance management
	methodGet      = 0x01
	madResponse    = 0x80
	directionBit   = 0x8000 // of a directed packet's status: it is a response
	badAttribute   = 0x000c // unsupported method or attribute
	badValue       = 0x001c // an unknown modifier of an attribute
)

// attributes are the readable attributes of subnet management, with which a
// driver queries the port if the firmware has no virtual ports (ib_virt).
var attributes = map[uint16]func(d *Device, modifier uint32, data []byte) (ok bool){
	0x10: (*Device).nodeDescription,
	0x11: (*Device).nodeInfo,
	0x14: (*Device).guidInfo,
	0x15: (*Device).portInfo,
	0x16: (*Device).pkeyTable,
}

// madIFC executes a management datagram for the port. Attributes cannot be set,
// because there is no subnet manager.
func (d *Device) madIFC(in, out []byte) error {
	if prm.MADIFCInPort.Get(in) > 1 {
		return refuse(statusBadParam, reasonPort)
	}
	mad := prm.MADIFCOutResponseMADPacket.Bytes(out)
	copy(mad, prm.MADIFCInMAD.Bytes(in))
	status := uint16(badAttribute)
	switch class := mad[madClass]; {
	case mad[madMethod] != methodGet:
	case class == classCounters:
		status = d.readCounters(mad)
	case d.config.LinkLayer == InfiniBand && (class == classLIDRouted || class == classDirected):
		status = d.readAttribute(mad)
	}
	if mad[madClass] == classDirected {
		status |= directionBit
	}
	mad[madMethod] |= madResponse
	binary.BigEndian.PutUint16(mad[madStatus:], status)
	return nil
}

// readAttribute stores an attribute of subnet management, and returns the status.
func (d *Device) readAttribute(mad []byte) uint16 {
	read := attributes[binary.BigEndian.Uint16(mad[madAttribute:])]
	if read == nil {
		return badAttribute
	}
	data := mad[madData : madData+64]
	clear(data)
	if !read(d, binary.BigEndian.Uint32(mad[madModifier:]), data) {
		return badValue
	}
	return 0
}

func (d *Device) nodeDescription(_ uint32, data []byte) bool {
	copy(data, d.port.description[:])
	return true
}

func (d *Device) nodeInfo(_ uint32, data []byte) bool {
	const adapter = 1
	data[0], data[1], data[2], data[3] = 1, 1, adapter, 1 // versions, type, ports
	for at := 4; at < 28; at += 8 {                       // of system, node and port
		binary.BigEndian.PutUint64(data[at:], d.config.GUID)
	}
	binary.BigEndian.PutUint16(data[28:], uint16(d.pkeys()))
	binary.BigEndian.PutUint16(data[30:], d.config.PCIDevice)
	binary.BigEndian.PutUint32(data[36:], 1<<24|0x2c9) // port and vendor
	return true
}

// guidInfo stores eight of the port's GUIDs.
func (d *Device) guidInfo(block uint32, data []byte) bool {
	if block == 0 {
		binary.BigEndian.PutUint64(data, d.config.GUID)
	}
	return block < uint32(d.gids())/8
}

// pkeyTable stores 32 of the port's P_Keys.
func (d *Device) pkeyTable(block uint32, data []byte) bool {
	if block == 0 {
		binary.BigEndian.PutUint16(data, defaultPKey)
	}
	return block < uint32(d.pkeys())/32
}

// gids and pkeys return the lengths of the port's tables.
func (d *Device) gids() int  { return 8 << d.caps.general(prm.HCACapGIDTableSize) }
func (d *Device) pkeys() int { return 128 << d.caps.general(prm.HCACapPKeyTableSize) }

func (d *Device) portInfo(port uint32, data []byte) bool {
	const (
		width4x = 2
		speeds  = 7 // SDR, DDR and QDR: extended speeds have another attribute
		qdr     = 4
		mtu4096 = 5
		lanes   = 4
	)
	logical, physical := d.portStates()
	gid := d.gid()
	copy(data[8:], gid[:8])
	if d.hca.Up() {
		binary.BigEndian.PutUint16(data[16:], d.config.LID)
		binary.BigEndian.PutUint16(data[18:], 1) // the subnet manager's LID
	}
	binary.BigEndian.PutUint32(data[20:], d.port.capMask)
	data[28] = 1 // the number
	data[29], data[30], data[31] = width4x, width4x, width4x
	data[32] = speeds<<4 | byte(logical)
	data[33] = byte(physical) << 4
	data[35] = qdr<<4 | speeds
	data[36] = mtu4096 << 4
	data[37] = lanes << 4
	data[41] = mtu4096
	data[43] = lanes << 4
	data[50] = byte(d.gids())
	data[51] = subnetTimeout
	return port <= 1
}
