package rsocket

import (
	"encoding/binary"
	"fmt"
)

// This file has the protocol: the private data that the sides exchange when they connect, and the immediate data of
// each message. librdmacm has the same: rsocket.c of rdma-core.

const (
	version  = 1
	helloLen = 40

	flagBigEndian = 1 << 0 // of the sender's memory
	flagIOMap     = 1 << 1 // the list is followed by a table of mappings

	listEntries = 2 // buffers of this side that the peer may know at a time
)

// An sge describes memory of the other side.
type sge struct {
	addr   uint64
	key    uint32
	length uint32
}

const sgeLen = 16

// put writes s in the byte order of the side that reads it.
func (s sge) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, s.addr)
	order.PutUint32(b[8:], s.key)
	order.PutUint32(b[12:], s.length)
}

func parseSGE(b []byte, order binary.ByteOrder) sge {
	return sge{addr: order.Uint64(b), key: order.Uint32(b[8:]), length: order.Uint32(b[12:])}
}

// A mapping is memory of the other side that WriteAt reaches by an offset.
type mapping struct {
	offset uint64
	sge
}

const mappingLen = 8 + sgeLen

func (m mapping) put(b []byte, order binary.ByteOrder) {
	order.PutUint64(b, m.offset)
	m.sge.put(b[8:], order)
}

func parseMapping(b []byte, order binary.ByteOrder) mapping {
	return mapping{offset: order.Uint64(b), sge: parseSGE(b[8:], order)}
}

// A hello is what a side says of itself when it connects.
type hello struct {
	order    binary.ByteOrder // of its memory
	credits  int              // messages that it has receives for
	mappings int              // entries of its table
	list     sge              // its list, with the number of entries as the length; the table follows
	data     sge              // its first buffer
}

func (h *hello) bytes() []byte {
	b := make([]byte, helloLen)
	be := binary.BigEndian
	b[0], b[1] = version, flagIOMap
	if h.order == binary.ByteOrder(binary.BigEndian) {
		b[1] |= flagBigEndian
	}
	be.PutUint16(b[2:], uint16(h.credits))
	b[7] = scale(h.mappings)
	h.list.put(b[8:], be)
	h.data.put(b[24:], be)
	return b
}

// parseHello checks the private data of a peer, which the kernel may have padded.
func parseHello(b []byte) (h hello, err error) {
	be := binary.BigEndian
	switch {
	case len(b) < helloLen:
		return h, fmt.Errorf("%w: its private data has %d bytes, and that of an rsocket %d", ErrProtocol, len(b), helloLen)
	case b[0] == 0: // no version; the kernel fills private data with zeros
		return h, fmt.Errorf("%w: its private data is not that of an rsocket: check the port", ErrProtocol)
	case b[0] != version:
		return h, fmt.Errorf("%w: it uses version %d, and this program version %d", ErrProtocol, b[0], version)
	}
	h = hello{order: binary.LittleEndian, credits: int(be.Uint16(b[2:]))}
	h.list, h.data = parseSGE(b[8:], be), parseSGE(b[24:], be)
	if b[1]&flagBigEndian != 0 {
		h.order = binary.BigEndian
	}
	if b[1]&flagIOMap != 0 {
		h.mappings = unscale(b[7])
	}
	if h.list.length == 0 {
		return h, fmt.Errorf("%w: it has no list for buffers", ErrProtocol)
	}
	return h, nil
}

// scale rounds a number down to what a byte of the private data can express.
func scale(n int) byte {
	if n <= 128 {
		return byte(n)
	}
	return 0x80 | byte(n>>8)
}

func unscale(b byte) int {
	if b <= 128 {
		return int(b)
	}
	return int(b&0x7f) << 8
}

// An op is the kind of a message: the upper bits of its immediate data.
type op uint32

const (
	opData    op = 0 // the data is the number of bytes
	opSGL     op = 4 // the data is the peer's new limit of messages; the payload, if any, is an sge
	opMapping op = 6 // the data is the index of an entry of the table, which is the payload
	opControl op = 7 // the data is one of the control constants

	dataBits = 29
	maxData  = 1<<dataBits - 1
)

// The data of an opControl.
const (
	controlDisconnect = 0
	controlKeepAlive  = 1
	controlShutdown   = 2
)

func immediate(o op, data int) uint32 { return uint32(o)<<dataBits | uint32(data) }

func parseImmediate(imm uint32) (op, int) { return op(imm >> dataBits), int(imm & maxData) }
