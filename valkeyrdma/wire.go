package valkeyrdma

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A command is a control message: 32 bytes, big-endian. The payload of the connection is not in messages: each side
// writes it to memory that the other has registered, with the number of bytes as immediate data.
type command struct {
	op       uint16
	features uint64 // of opGetFeature and opSetFeature
	memory   memory // of opRegister
}

// memory is a buffer that its owner has announced: the peer writes to it from the beginning to the end, once.
type memory struct {
	addr   uint64
	length uint32
	key    uint32
}

// The commands.
const (
	opGetFeature = 0 // of a client: the server replies with the same command
	opSetFeature = 1 // of a client
	opKeepAlive  = 2
	opRegister   = 3
)

const commandLen = 32

// peerReceives is how many receives a side has, which is what the protocol recommends. No command changes it.
const peerReceives = 1024

func (c command) bytes() (b [commandLen]byte) {
	binary.BigEndian.PutUint16(b[0:], c.op)
	switch c.op {
	case opGetFeature, opSetFeature: // select, in bytes 2 and 3, has no meaning yet
		binary.BigEndian.PutUint64(b[24:], c.features)
	case opRegister:
		binary.BigEndian.PutUint64(b[16:], c.memory.addr)
		binary.BigEndian.PutUint32(b[24:], c.memory.length)
		binary.BigEndian.PutUint32(b[28:], c.memory.key)
	}
	return b
}

// parseCommand parses a message of the peer.
func parseCommand(b []byte) (c command, err error) {
	if len(b) != commandLen {
		return c, fmt.Errorf("%w: it sends a command of %d bytes instead of %d", ErrProtocol, len(b), commandLen)
	}
	c.op = binary.BigEndian.Uint16(b)
	switch c.op {
	case opGetFeature, opSetFeature:
		c.features = binary.BigEndian.Uint64(b[24:])
	case opKeepAlive:
	case opRegister:
		c.memory = memory{addr: binary.BigEndian.Uint64(b[16:]), length: binary.BigEndian.Uint32(b[24:]),
			key: binary.BigEndian.Uint32(b[28:])}
		if m := c.memory; m.length == 0 || m.addr > math.MaxUint64-uint64(m.length) {
			return c, fmt.Errorf("%w: it announces a buffer of %d bytes at %#x", ErrProtocol, m.length, m.addr)
		}
	default:
		return c, fmt.Errorf("%w: it sends the unknown command %d", ErrProtocol, c.op)
	}
	return c, nil
}
