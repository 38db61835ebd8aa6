package rping

import (
	"encoding/binary"
	"fmt"
)

// A message contains the address of memory for the peer to access. The contents of
// the server's messages, which mean "go ahead", are ignored.
type message struct {
	addr uint64
	rkey uint32
	size uint32
}

// messageSize is the length of a message: address, rkey and size, big-endian.
const messageSize = 16

func (m message) put(b []byte) {
	_ = b[messageSize-1]
	binary.BigEndian.PutUint64(b, m.addr)
	binary.BigEndian.PutUint32(b[8:], m.rkey)
	binary.BigEndian.PutUint32(b[12:], m.size)
}

func parseMessage(b []byte) (message, error) {
	if len(b) != messageSize {
		return message{}, fmt.Errorf("the peer sent a message of %d bytes, not %d: is it an rping?", len(b), messageSize)
	}
	return message{
		addr: binary.BigEndian.Uint64(b),
		rkey: binary.BigEndian.Uint32(b[8:]),
		size: binary.BigEndian.Uint32(b[12:]),
	}, nil
}
