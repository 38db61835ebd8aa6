package connectx

import (
	"encoding/binary"
	"math"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// Attributes of performance management, and bytes of their data.
const (
	pmaClassPortInfo = 0x01
	pmaCounters      = 0x12
	pmaExtended      = 0x1d

	pmaPort  = 1
	everyone = 0xff // all ports
)

// readCounters stores an attribute of performance management (IBA section 16.1), and returns the status. Drivers
// request them with MAD_IFC for themselves, as for files in sysfs, and for datagrams that arrive at the port. Counters
// cannot be set.
func (d *Device) readCounters(mad []byte) uint16 {
	const extendedWidth = 1 << 9 // of the capability mask
	data := mad[madData:]
	port := data[pmaPort]
	attribute := binary.BigEndian.Uint16(mad[madAttribute:])
	if attribute != pmaClassPortInfo && port != 1 && port != everyone {
		return badValue
	}
	clear(data)
	c := d.hca.PortCounters()
	switch attribute {
	case pmaClassPortInfo:
		data[0], data[1] = 1, 1 // versions
		binary.BigEndian.PutUint16(data[2:], extendedWidth)
	case pmaCounters:
		data[pmaPort] = port
		storeCounters(&c, data)
	case pmaExtended:
		data[pmaPort] = port
		storeExtended(&c, data)
	default:
		return badAttribute
	}
	return 0
}

// storeCounters stores counters that stop at their maximum. Those of errors, which this network does not have, are 0.
func storeCounters(c *engine.PortCounters, data []byte) {
	data[7] = uint8(min(c.Downs, math.MaxUint8))
	for i, v := range totals(c) {
		binary.BigEndian.PutUint32(data[24+4*i:], uint32(min(v, math.MaxUint32)))
	}
}

// storeExtended stores counters of 64 bits: the totals, and the packets by destination.
func storeExtended(c *engine.PortCounters, data []byte) {
	all := totals(c)
	for i, v := range append(all[:], c.Sent[engine.Unicast].Packets, c.Received[engine.Unicast].Packets,
		c.Sent[engine.Multicast].Packets, c.Received[engine.Multicast].Packets) {
		binary.BigEndian.PutUint64(data[8+8*i:], v)
	}
}

// totals returns the data sent and received, in words of four bytes, and the packets sent and received.
func totals(c *engine.PortCounters) [4]uint64 {
	var bytes, packets [2]uint64
	for i, by := range [2]*[engine.Broadcast]engine.Traffic{&c.Sent, &c.Received} {
		for _, t := range by {
			bytes[i] += t.Bytes
			packets[i] += t.Packets
		}
	}
	return [4]uint64{bytes[0] / 4, bytes[1] / 4, packets[0], packets[1]}
}
