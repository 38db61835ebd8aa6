package s3rdma

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// The form of the wire for reliable connections.
const (
	rcProtocol = "hipobj-rc-v2"
	rcPrefix   = "/.hipobj-rc/"
	rcPrepare  = rcPrefix + "prepare"
	rcReady    = rcPrefix + "ready"
	rcCancel   = rcPrefix + "cancel"

	headerProtocol = "X-Amz-Rdma-Protocol"
	headerStatus   = "X-Amz-Rdma-Protocol-Status"
	headerPSN      = "X-Amz-Rdma-Psn"
	headerCookie   = "X-Amz-Rdma-Cookie"
	headerOp       = "X-Amz-Rdma-Op"
	headerTarget   = "X-Amz-Rdma-Target"
	headerSize     = "X-Amz-Rdma-Size"
	headerOffset   = "X-Amz-Rdma-Offset"
	headerSession  = "X-Amz-Rdma-Session"
	headerQPN      = "X-Amz-Rdma-Qpn"
	headerMRAddr   = "X-Amz-Rdma-Mr-Addr"
	headerMRKey    = "X-Amz-Rdma-Mr-Rkey"
	headerETag     = "X-Amz-Rdma-Etag"
	headerVersion  = "X-Amz-Rdma-Version-Id"

	rcReplyOK = "200:" // in front of the server's token

	// rcMaxSize is the longest transfer.
	rcMaxSize = math.MaxInt32
	// sessionDigits is the length of the name of a session, in hexadecimal digits.
	sessionDigits = 32
)

// An rcToken is the token of this form: a QP, and memory that can be reached through it. Its text has 88 hexadecimal
// digits: 44 bytes, numbers in little-endian order.
type rcToken struct {
	qpn    uint32
	gid    uverbs.GID
	rkey   uint32
	addr   uint64
	length uint64
	port   uint8
	lid    uint16
}

const (
	rcTokenBytes  = 44
	rcTransportRC = 1
)

func (t rcToken) String() string {
	le := binary.LittleEndian
	b := le.AppendUint32([]byte{rcTransportRC}, t.qpn)
	b = append(b, t.gid[:]...)
	b = le.AppendUint32(b, t.rkey)
	b = le.AppendUint64(b, t.addr)
	b = le.AppendUint64(b, t.length)
	return hex.EncodeToString(le.AppendUint16(append(b, t.port), t.lid))
}

// parseRCToken parses the token of a peer that can be connected to.
func parseRCToken(text string) (t rcToken, err error) {
	if len(text) > 2*rcTokenBytes && text[2*rcTokenBytes] == ':' { // some clients append address and size
		text = text[:2*rcTokenBytes]
	}
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != rcTokenBytes {
		return t, tokenError(fmt.Sprintf("want %d hexadecimal digits", 2*rcTokenBytes))
	}
	if b[0] != rcTransportRC {
		return t, tokenError(fmt.Sprintf("it has transport %d, reliable connections have %d", b[0], rcTransportRC))
	}
	le := binary.LittleEndian
	t = rcToken{qpn: le.Uint32(b[1:]), gid: uverbs.GID(b[5:21]), rkey: le.Uint32(b[21:]), addr: le.Uint64(b[25:]),
		length: le.Uint64(b[33:]), port: b[41], lid: le.Uint16(b[42:])}
	switch {
	case t.qpn == 0 || t.qpn > maxQPN:
		return t, tokenError(fmt.Sprintf("the QP has number %#x", t.qpn))
	case t.gid.IsZero() || t.gid[0] == 0xff:
		return t, tokenError("the GID is not that of a host")
	}
	return t, nil
}

// maxQPN is the largest number of a QP, and the largest PSN.
const maxQPN = 1<<24 - 1

// hexHeader parses a header with a number that is not 0, in hexadecimal digits.
func hexHeader(h http.Header, name string, limit uint64) (uint64, error) {
	return numberHeader(h, name, 16, 1, limit)
}

func numberHeader(h http.Header, name string, base int, least, most uint64) (uint64, error) {
	n, err := strconv.ParseUint(h.Get(name), base, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%w: %s is %.100q, want a number from %d to %d in base %d", ErrProtocol, strings.ToLower(name),
			h.Get(name), least, most, base)
	}
	return n, nil
}

func formatHex[T uint32 | uint64](n T) string { return strconv.FormatUint(uint64(n), 16) }

// formatPSN and formatCookie have fixed lengths on the wire.
func formatPSN(n uint32) string    { return fmt.Sprintf("%06x", n) }
func formatCookie(n uint32) string { return fmt.Sprintf("%08x", n) }
