package vfiouser

import (
	"encoding/binary"
	"fmt"
)

// A Command is the command of a message.
type Command uint16

// The commands of the protocol.
const (
	Version      Command = 1
	DMAMap       Command = 2
	DMAUnmap     Command = 3
	GetInfo      Command = 4
	RegionInfo   Command = 5
	RegionIOFDs  Command = 6
	IRQInfo      Command = 7
	SetIRQs      Command = 8
	RegionRead   Command = 9
	RegionWrite  Command = 10
	DMARead      Command = 11
	DMAWrite     Command = 12
	DeviceReset  Command = 13
	RegionWrites Command = 15 // REGION_WRITE_MULTI
)

// String implements fmt.Stringer with the protocol's names.
func (c Command) String() string {
	if name := names[c]; name != "" {
		return name
	}
	return fmt.Sprintf("command %d", uint16(c))
}

var names = map[Command]string{
	Version: "VERSION", DMAMap: "DMA_MAP", DMAUnmap: "DMA_UNMAP", GetInfo: "DEVICE_GET_INFO",
	RegionInfo: "DEVICE_GET_REGION_INFO", RegionIOFDs: "DEVICE_GET_REGION_IO_FDS",
	IRQInfo: "DEVICE_GET_IRQ_INFO", SetIRQs: "DEVICE_SET_IRQS", RegionRead: "REGION_READ",
	RegionWrite: "REGION_WRITE", DMARead: "DMA_READ", DMAWrite: "DMA_WRITE", DeviceReset: "DEVICE_RESET",
	RegionWrites: "REGION_WRITE_MULTI",
}

// Protocol version and limits of a server.
const (
	major = 0
	minor = 1 // the highest supported

	maxFDs      = 8       // in one message
	maxTransfer = 1 << 20 // bytes of data in one message
	maxMaps     = 512     // mappings of memory at a time
	pageSize    = 4096    // the granularity of mappings

	headerSize = 16
	accessSize = 16 // of a REGION_READ or REGION_WRITE, without data
	maxMessage = headerSize + accessSize + maxTransfer
)

// The flags of a message.
const (
	flagType    = 0xf
	flagReply   = 0x1
	flagNoReply = 0x10
	flagError   = 0x20
)

// Numbers have the host's byte order, which is little-endian on the
// architectures for which QEMU emulates PCI machines.
var order = binary.LittleEndian

// header is the start of every message.
type header struct {
	id      uint16
	command Command
	size    uint32 // of the message, including the header
	flags   uint32
	errno   uint32
}

func parseHeader(b []byte) header {
	return header{
		id: order.Uint16(b), command: Command(order.Uint16(b[2:])), size: order.Uint32(b[4:]),
		flags: order.Uint32(b[8:]), errno: order.Uint32(b[12:]),
	}
}

func (h header) put(b []byte) {
	order.PutUint16(b, h.id)
	order.PutUint16(b[2:], uint16(h.command))
	order.PutUint32(b[4:], h.size)
	order.PutUint32(b[8:], h.flags)
	order.PutUint32(b[12:], h.errno)
}

// append32 and append64 append numbers.
func append32(b []byte, values ...uint32) []byte {
	for _, v := range values {
		b = order.AppendUint32(b, v)
	}
	return b
}

func append64(b []byte, values ...uint64) []byte {
	for _, v := range values {
		b = order.AppendUint64(b, v)
	}
	return b
}
