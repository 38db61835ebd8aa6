package s3rdma

import (
	"fmt"
	"math"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// Headers of the published wire, in the canonical form of net/http.
const (
	headerToken = "X-Amz-Rdma-Token"
	headerReply = "X-Amz-Rdma-Reply"
	headerBytes = "X-Amz-Rdma-Bytes-Transferred"
	headerCRC64 = "X-Amz-Checksum-Crc64nvme"
)

// declined is the value of the reply header of a server that does not use RDMA.
const declined = "501"

// defaultDCKey is the access key of DCTs that the peers of this wire agree on without an exchange.
const defaultDCKey = 0xffeeddcc

// maxSize is the size of the largest memory that a descriptor can name: its field has 32 bits.
const maxSize = math.MaxUint32

// A Token is the value of the header x-amz-rdma-token: it names memory of the client, and the DCT through which the
// server reaches it. Its text is a descriptor of 81 characters, all of them hexadecimal digits but for the colons:
//
//	address(16):size(8):rkey(8):lid(4):dctn(6):has-gid(1):gid(32)
type Token struct {
	Addr   uint64
	Size   uint32
	RKey   uint32
	LID    uint16 // on InfiniBand
	DCTN   uint32 // the number of the DCT, 24 bits
	HasGID bool
	GID    uverbs.GID
}

const (
	descriptorFormat = "%016x:%08x:%08x:%04x:%06x:%01x:%032x"
	descriptorLength = 81
	// suffixFormat is what some clients append: the address and the size of this transfer, within the descriptor's.
	suffixFormat = ":%016x:%016x"
	suffixLength = 34
)

// String returns the descriptor.
func (t Token) String() string {
	hasGID := 0
	if t.HasGID {
		hasGID = 1
	}
	return fmt.Sprintf(descriptorFormat, t.Addr, t.Size, t.RKey, t.LID, t.DCTN, hasGID, t.GID[:])
}

// ParseToken parses what a client sent. It accepts a descriptor, one with the appended address and size that earlier
// clients send, and a semicolon behind either. It returns an error that matches [ErrToken] for any other text, for a
// number of 0 where a DCT has another, and for memory that no address space has or that is outside the descriptor's.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSuffix(text, ";")
	if len(text) != descriptorLength && len(text) != descriptorLength+suffixLength {
		return Token{}, tokenError(fmt.Sprintf("%d characters, want %d", len(text), descriptorLength))
	}
	t, ok := parseDescriptor(text[:descriptorLength])
	if !ok {
		return Token{}, tokenError("want fields of 16, 8, 8, 4, 6, 1 and 32 hexadecimal digits, separated by colons")
	}
	if suffix := text[descriptorLength:]; suffix != "" {
		if t, ok = t.within(suffix); !ok {
			return Token{}, tokenError("the appended address and size are not inside the descriptor's")
		}
	}
	switch {
	case uint64(t.Size) > math.MaxUint64-t.Addr:
		return Token{}, tokenError("the memory ends beyond 64 bits")
	case t.DCTN == 0:
		return Token{}, tokenError("the DCT has number 0")
	case t.HasGID && (t.GID.IsZero() || t.GID[0] == 0xff):
		return Token{}, tokenError("the GID is not that of a host")
	case !t.HasGID && t.LID == 0:
		return Token{}, tokenError("it has neither a GID nor a LID")
	}
	return t, nil
}

func parseDescriptor(text string) (t Token, ok bool) {
	var hasGID uint8
	var gid []byte
	_, err := fmt.Sscanf(text, "%16x:%8x:%8x:%4x:%6x:%1x:%32x", &t.Addr, &t.Size, &t.RKey, &t.LID, &t.DCTN, &hasGID, &gid)
	if err != nil || len(gid) != len(t.GID) {
		return Token{}, false
	}
	t.HasGID, t.GID = hasGID == 1, uverbs.GID(gid)
	return t, strings.EqualFold(t.String(), text) // Sscanf accepts text that does not fill the fields
}

// within returns the token of a part of the memory.
func (t Token) within(suffix string) (Token, bool) {
	var addr, size uint64
	_, err := fmt.Sscanf(suffix, ":%16x:%16x", &addr, &size)
	if err != nil || !strings.EqualFold(fmt.Sprintf(suffixFormat, addr, size), suffix) {
		return Token{}, false
	}
	if addr < t.Addr || size > uint64(t.Size) || addr-t.Addr > uint64(t.Size)-size {
		return Token{}, false
	}
	t.Addr, t.Size = addr, uint32(size)
	return t, true
}

// endpoint returns the address of the DCT.
func (t Token) endpoint() uverbs.Endpoint {
	e := uverbs.Endpoint{QPN: t.DCTN, LID: t.LID}
	if t.HasGID {
		e.GID = t.GID
	}
	return e
}
