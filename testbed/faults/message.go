package faults

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// A Message has a number and a checksum. Its length and its bytes depend on the number.
type Message struct {
	Run  uint64 // number of the sending process
	Kind Kind
	Seq  uint64
}

// A Kind is the purpose of a message.
type Kind uint32

// The kinds.
const (
	Data      Kind = iota + 1 // sent by SEND
	Round                     // written by WRITE and read back by READ: one packet
	Done                      // sent by SEND: the sender has no more Data
	LongRound                 // a Round that may be several packets
	ShortData                 // a Data of one packet
	LongData                  // a Data of three or four packets
)

// MaxLen is the maximum length of a message, which is several packets.
const MaxLen = 4000

const (
	magic      = 0x666c7476
	headerLen  = 4 + 4 + 8 + 8 + 4 + 4
	crcAt      = headerLen - 4
	usualBytes = 512
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Len returns the length of the message. Most messages are short.
func (m Message) Len() int {
	if m.Kind == Done {
		return headerLen
	}
	r := mix(m.Seq + 1)
	if m.Kind == LongData {
		return MaxLen - int(r>>8%usualBytes)
	}
	if r%8 == 0 && m.Kind != Round && m.Kind != ShortData {
		return headerLen + int(r>>8%(MaxLen-headerLen+1))
	}
	return headerLen + int(r>>8%usualBytes)
}

// Write writes the message to the start of b and returns its length.
func (m Message) Write(b []byte) int {
	b = b[:m.Len()]
	binary.LittleEndian.PutUint32(b, magic)
	binary.LittleEndian.PutUint32(b[4:], uint32(m.Kind))
	binary.LittleEndian.PutUint64(b[8:], m.Run)
	binary.LittleEndian.PutUint64(b[16:], m.Seq)
	binary.LittleEndian.PutUint32(b[24:], uint32(len(b)))
	fill(b[headerLen:], m.Run^m.Seq<<1)
	binary.LittleEndian.PutUint32(b[crcAt:], sum(b))
	return len(b)
}

// Read parses the message in b, which must have the message's length.
func Read(b []byte) (Message, error) {
	if len(b) < headerLen || binary.LittleEndian.Uint32(b) != magic {
		return Message{}, fmt.Errorf("%d bytes are not a message", len(b))
	}
	m := Message{Kind: Kind(binary.LittleEndian.Uint32(b[4:])), Run: binary.LittleEndian.Uint64(b[8:]),
		Seq: binary.LittleEndian.Uint64(b[16:])}
	if got, want := sum(b), binary.LittleEndian.Uint32(b[crcAt:]); got != want {
		return m, fmt.Errorf("message %d has checksum %#x instead of %#x", m.Seq, got, want)
	}
	if n := binary.LittleEndian.Uint32(b[24:]); int(n) != len(b) || m.Len() != len(b) {
		return m, fmt.Errorf("message %d has %d bytes instead of %d", m.Seq, len(b), n)
	}
	return m, nil
}

// sum returns the checksum of a message, without the checksum field.
func sum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:crcAt], castagnoli), castagnoli, b[headerLen:])
}

func fill(b []byte, seed uint64) {
	for len(b) >= 8 {
		seed = mix(seed)
		binary.LittleEndian.PutUint64(b, seed)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(seed >> (8 * i))
	}
}

// mix is splitmix64, a hash function.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
