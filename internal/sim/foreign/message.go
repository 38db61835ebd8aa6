package foreign

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// The operations of requests.
const (
	opOpen  = 1 // a: the node
	opIoctl = 2 // a: address of the command
	opMmap  = 3 // a: offset, b: length; the reply has what is there, and the number of a register page
	opStore = 4 // a: register page, b: offset, and the bytes
	opName  = 5 // a: the key of an event descriptor, b: its number
	opWrite = 6 // a: address, b: length
	opEvent = 7 // a: the user handle in an event that was read, b: 1 for a completion; the reply has whether it counts
)

// The nodes.
const (
	nodeVerbs = 0
	nodeCM    = 1
)

const (
	requestSize = 32
	maxStore    = 4096
)

// A request is a message of a program.
type request struct {
	op      uint32
	a, b, c uint64
	data    []byte
}

func parse(b []byte) (r request, ok bool) {
	if len(b) < requestSize {
		return r, false
	}
	return request{op: binary.NativeEndian.Uint32(b), a: binary.NativeEndian.Uint64(b[8:]),
		b: binary.NativeEndian.Uint64(b[16:]), c: binary.NativeEndian.Uint64(b[24:]), data: b[requestSize:]}, true
}

// A reply is a message of the server. With a descriptor, a is the address where the program stores the descriptor's
// number, b has its key, and kind is the size of the number in bytes.
type reply struct {
	errno unix.Errno
	kind  uint32
	a, b  uint64
	fd    int // or -1
}

func (r *reply) marshal() []byte {
	b := binary.NativeEndian.AppendUint32(nil, uint32(r.errno))
	b = binary.NativeEndian.AppendUint32(b, r.kind)
	b = binary.NativeEndian.AppendUint64(b, r.a)
	return binary.NativeEndian.AppendUint64(b, r.b)
}
