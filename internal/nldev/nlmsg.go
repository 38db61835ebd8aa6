package nldev

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/uapi"
)

// Netlink uses host byte order.
var order = binary.NativeEndian

const (
	headerLen = unix.SizeofNlMsghdr
	attrLen   = unix.SizeofNlAttr
	typeMask  = 0x3fff // NLA_TYPE_MASK: without the nested and byte-order bits
	capped    = 0x100  // NLM_F_CAPPED: the request is not repeated in the error
	ackTLVs   = 0x200  // NLM_F_ACK_TLVS: attributes follow the error
)

// message is one netlink message: fields of struct nlmsghdr, and the payload.
type message struct {
	typ, flags uint16
	seq        uint32
	payload    []byte
}

// errMalformed is wrapped by the error of every invalid reply.
var errMalformed = errors.New("malformed netlink reply")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

func align(n int) int { return (n + 3) &^ 3 }

// messageType is the message type of an nldev command.
func messageType(op uint16) uint16 { return uapi.RDMA_NL_NLDEV<<10 | op }

// appendRequest returns a request with this payload.
func appendRequest(typ, flags uint16, seq uint32, payload []byte) []byte {
	b := order.AppendUint32(nil, uint32(headerLen+len(payload)))
	b = order.AppendUint16(b, typ)
	b = order.AppendUint16(b, flags)
	b = order.AppendUint32(b, seq)
	b = order.AppendUint32(b, 0) // to the kernel
	return append(b, payload...)
}

// appendAttr appends one attribute, padded to four bytes.
func appendAttr(b []byte, typ uint16, data []byte) []byte {
	b = order.AppendUint16(b, uint16(attrLen+len(data)))
	b = order.AppendUint16(b, typ)
	b = append(b, data...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func appendU32(b []byte, typ uint16, v uint32) []byte {
	return appendAttr(b, typ, order.AppendUint32(nil, v))
}

// appendString appends a string with its final NUL.
func appendString(b []byte, typ uint16, s string) []byte {
	return appendAttr(b, typ, append([]byte(s), 0))
}

// parseMessages splits a datagram into messages.
func parseMessages(b []byte) ([]message, error) {
	var out []message
	for len(b) > 0 {
		if len(b) < headerLen {
			return nil, malformed("%d bytes where a message header should be", len(b))
		}
		n := order.Uint32(b)
		if n < headerLen || uint64(n) > uint64(len(b)) {
			return nil, malformed("message length %d of %d bytes", n, len(b))
		}
		out = append(out, message{order.Uint16(b[4:]), order.Uint16(b[6:]), order.Uint32(b[8:]), b[headerLen:n]})
		b = b[min(align(int(n)), len(b)):]
	}
	return out, nil
}

// eachAttr calls f for every attribute except padding attributes (type 0).
func eachAttr(b []byte, f func(typ uint16, data []byte) error) error {
	for len(b) > 0 {
		if len(b) < attrLen {
			return malformed("%d bytes where an attribute should be", len(b))
		}
		n, typ := int(order.Uint16(b)), order.Uint16(b[2:])&typeMask
		if n < attrLen || n > len(b) {
			return malformed("attribute %d has length %d of %d bytes", typ, n, len(b))
		}
		if typ != uapi.RDMA_NLDEV_ATTR_PAD {
			if err := f(typ, b[attrLen:n]); err != nil {
				return err
			}
		}
		b = b[min(align(n), len(b)):]
	}
	return nil
}

// eachEntry calls f with each attribute of type entry within the attributes of type table.
func eachEntry(b []byte, table, entry uint16, f func(data []byte) error) error {
	return eachAttr(b, func(typ uint16, data []byte) error {
		if typ != table {
			return nil
		}
		return eachAttr(data, func(typ uint16, data []byte) error {
			if typ != entry {
				return nil
			}
			return f(data)
		})
	})
}

// unsigned decodes an unsigned attribute of any size. Kernels and headers disagree on some sizes:
// the driver id is declared with 8 bytes and sent with 4.
func unsigned(typ uint16, b []byte) (uint64, error) {
	switch len(b) {
	case 1:
		return uint64(b[0]), nil
	case 2:
		return uint64(order.Uint16(b)), nil
	case 4:
		return uint64(order.Uint32(b)), nil
	case 8:
		return order.Uint64(b), nil
	}
	return 0, malformed("attribute %d has %d bytes, not an integer", typ, len(b))
}

// text decodes a string attribute up to its NUL.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// A fileName is a string that becomes part of a path: the name of a device or a node.
type fileName string

// decode stores attributes in fields, by type: a *string, a *fileName, or a *uint8, *uint32 or *uint64 for an unsigned
// attribute of any size. It returns the types that b has.
func decode(b []byte, fields map[uint16]any) (seen map[uint16]bool, err error) {
	seen = map[uint16]bool{}
	err = eachAttr(b, func(typ uint16, data []byte) (err error) {
		seen[typ] = true
		var v uint64
		switch f := fields[typ].(type) {
		case *string:
			*f = text(data)
		case *fileName:
			if *f = fileName(text(data)); !validName(string(*f)) {
				err = malformed("attribute %d is %q, not a name", typ, *f)
			}
		case *uint8:
			v, err = unsigned(typ, data)
			*f = uint8(v)
		case *uint32:
			if v, err = unsigned(typ, data); err == nil && v > 1<<32-1 {
				err = malformed("attribute %d is %#x", typ, v)
			}
			*f = uint32(v)
		case *uint64:
			*f, err = unsigned(typ, data)
		}
		return err
	})
	return seen, err
}

// validName reports whether s can be a file name: one path element other than "." and "..".
func validName(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !bytes.ContainsAny([]byte(s), "/\x00")
}

// ackError decodes the payload of NLMSG_ERROR: 0 for an acknowledgement, otherwise the errno and
// the kernel's text.
func ackError(m message) (unix.Errno, string, error) {
	if len(m.payload) < 4 {
		return 0, "", malformed("error message of %d bytes", len(m.payload))
	}
	code := int32(order.Uint32(m.payload))
	if code > 0 || code < -4095 {
		return 0, "", malformed("error code %d", code)
	}
	if m.flags&ackTLVs == 0 || len(m.payload) < 4+headerLen {
		return unix.Errno(-code), "", nil
	}
	skip := 4 + headerLen
	if m.flags&capped == 0 {
		n := order.Uint32(m.payload[4:])
		if n < headerLen || uint64(n) > uint64(len(m.payload)-4) {
			return 0, "", malformed("error message repeats %d bytes of %d", n, len(m.payload))
		}
		skip = min(4+align(int(n)), len(m.payload))
	}
	var msg string
	_, err := decode(m.payload[skip:], map[uint16]any{unix.NLMSGERR_ATTR_MSG: &msg})
	return unix.Errno(-code), msg, err
}
