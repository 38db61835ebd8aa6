package main

import "encoding/binary"

// The operations of messages.
const (
	opLogin = iota
	opStart
	opData
	opEcho
	opEnd
)

const (
	headerLen  = 8
	controlLen = 16 // of messages other than opData and opEcho
	maxMessage = headerLen + 2048
)

// A message has a header: op, number of the client, sequence number, a reserved byte, and a big-endian count.
type message []byte

func (m message) op() byte         { return m[0] }
func (m message) setOp(op byte)    { m[0] = op }
func (m message) client() byte     { return m[1] }
func (m message) setClient(c byte) { m[1] = c }
func (m message) seq() byte        { return m[2] }
func (m message) setSeq(s byte)    { m[2] = s }
func (m message) count() uint32    { return binary.BigEndian.Uint32(m[4:]) }
func (m message) setCount(n uint32) {
	binary.BigEndian.PutUint32(m[4:], n)
}
