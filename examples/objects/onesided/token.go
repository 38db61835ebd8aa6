package onesided

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	tokenVersion = "1"
	tokenFields  = 6
	maxToken     = 512 // bytes of text
)

// ErrToken is the error for a token that is malformed or has another version.
var ErrToken = errors.New("onesided: not a token of version " + tokenVersion)

// A Token names memory of the client, and how the server reaches it. Its text has six fields:
//
//	version;transport;address;length;rkey;peer
//	1;rc;00007f2a10000000;1048576;0001a2b3;0000:000123:a1b2c3:00000000000000000000ffff0a090001:5:16
//
// The version is 1. The address has 16 hexadecimal digits, the key 8; the length is decimal, in
// bytes. The form of the peer depends on the transport. For rc it is an [uverbs.Endpoint]: LID,
// QP number, PSN, GID, MTU and the number of READs that the QP serves. For dc it is the access key
// of the DCT, in 16 hexadecimal digits, and its Endpoint:
//
//	1;dc;00007f2a10000000;1048576;0001a2b3;0123456789abcdef:0000:000123:a1b2c3:00000000000000000000ffff0a090001:5:16
type Token struct {
	Transport string
	Addr      uint64
	Length    int // of a PUT: the body's; of a GET: the room for it
	RKey      uint32
	Peer      string
}

func (t Token) String() string {
	return fmt.Sprintf("%s;%s;%016x;%d;%08x;%s", tokenVersion, t.Transport, t.Addr, t.Length, t.RKey, t.Peer)
}

// ParseToken parses what a client sent. It returns [ErrToken] for text that String does not
// write, and for memory that no address space has.
func ParseToken(text string) (t Token, err error) {
	f := strings.Split(text, ";")
	if len(text) > maxToken || len(f) != tokenFields || f[0] != tokenVersion {
		return t, ErrToken
	}
	addr, err1 := strconv.ParseUint(f[2], 16, 64)
	length, err2 := strconv.ParseUint(f[3], 10, 32)
	rkey, err3 := strconv.ParseUint(f[4], 16, 32)
	if err1 != nil || err2 != nil || err3 != nil || length > uverbs.MaxMessage || addr > math.MaxUint64-length {
		return t, ErrToken
	}
	t = Token{Transport: f[1], Addr: addr, Length: int(length), RKey: uint32(rkey), Peer: f[5]}
	if t.String() != text {
		return Token{}, ErrToken
	}
	return t, nil
}
