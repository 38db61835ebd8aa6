package perftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/goverbs/goverbs/uverbs"
)

// keys are the parameters of a QP that are sent to the peer: struct pingpong_dest of
// perftest.
type keys struct {
	lid   uint16
	outs  uint32 // outstanding READs and atomics that the QP accepts
	qpn   uint32
	psn   uint32
	rkey  uint32
	vaddr uint64
	gid   uverbs.GID
	srqn  uint32
}

// The lengths of the text forms, including the final NUL, and of the binary form, which
// is used over rdma_cm.
const (
	plainKeys  = 59
	gidKeys    = 108
	binaryKeys = 56
)

// text returns the form for TCP: hexadecimal fields separated by colons.
func (k keys) text(withGID bool) []byte {
	b := fmt.Appendf(nil, "%04x:%04x:%06x:%06x:%08x:%016x", k.lid, k.outs, k.qpn, k.psn, k.rkey, k.vaddr)
	if !withGID {
		return fmt.Appendf(b, ":%08x\x00", k.srqn)
	}
	for _, c := range k.gid {
		b = fmt.Appendf(b, ":%02x", c)
	}
	return fmt.Appendf(b, ":%08x:\x00", k.srqn)
}

// parseKeys parses the text form. Its length determines whether there is a GID.
func parseKeys(text []byte) (k keys, err error) {
	bad := atPeer("", "the peer's keys are not in perftest's format: %q", text)
	withGID := len(text) == gidKeys
	fields := bytes.Split(bytes.TrimSuffix(bytes.TrimSuffix(text, []byte{0}), []byte{':'}), []byte{':'})
	if !withGID && len(text) != plainKeys || len(fields) != len(keyBits) && !withGID ||
		withGID && len(fields) != len(keyBits)+len(k.gid) {
		return k, bad
	}
	var v [len(keyBits)]uint64
	for i, bits := range keyBits {
		field := fields[i]
		if i == len(keyBits)-1 {
			field = fields[len(fields)-1]
		}
		if v[i], err = strconv.ParseUint(string(field), 16, bits); err != nil {
			return k, bad
		}
	}
	k = keys{lid: uint16(v[0]), outs: uint32(v[1]), qpn: uint32(v[2]), psn: uint32(v[3]), rkey: uint32(v[4]), vaddr: v[5],
		srqn: uint32(v[6])}
	if withGID {
		for i := range k.gid {
			c, err := strconv.ParseUint(string(fields[6+i]), 16, 8)
			if err != nil {
				return k, bad
			}
			k.gid[i] = byte(c)
		}
	}
	return k, nil
}

// keyBits lists the widths of the fields lid, outs, qpn, psn, rkey, vaddr and srqn,
// which is the last.
var keyBits = [...]int{16, 32, 24, 24, 32, 64, 32}

// binary returns the form for rdma_cm: big-endian, in the layout of the C struct.
func (k keys) binary() []byte {
	b := make([]byte, binaryKeys)
	be := binary.BigEndian
	be.PutUint32(b[0:], uint32(k.lid))
	be.PutUint32(b[4:], k.outs)
	be.PutUint32(b[8:], k.qpn)
	be.PutUint32(b[12:], k.psn)
	be.PutUint32(b[16:], k.rkey)
	be.PutUint64(b[24:], k.vaddr)
	copy(b[32:48], k.gid[:])
	be.PutUint32(b[48:], k.srqn)
	return b
}

func parseBinaryKeys(b []byte) (keys, error) {
	be := binary.BigEndian
	return keys{lid: uint16(be.Uint32(b)), outs: be.Uint32(b[4:]), qpn: be.Uint32(b[8:]), psn: be.Uint32(b[12:]),
		rkey: be.Uint32(b[16:]), vaddr: be.Uint64(b[24:]), gid: uverbs.GID(b[32:48]), srqn: be.Uint32(b[48:])}, nil
}
