package rdma

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// Rights are what a peer may do with memory that is shared with it.
type Rights uint8

// The rights of [Conn.Share].
const (
	CanRead   Rights = 1 << iota // Read
	CanWrite                     // Write, WriteImm
	CanAtomic                    // CompareAndSwap, FetchAdd
	allRights = CanRead | CanWrite | CanAtomic
)

// String returns the names of the rights.
func (r Rights) String() string {
	var names []string
	for i, name := range []string{"CanRead", "CanWrite", "CanAtomic"} {
		if r&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if other := r &^ allRights; other != 0 || r == 0 {
		names = append(names, fmt.Sprintf("%#x", uint8(other)))
	}
	return strings.Join(names, "|")
}

func (r Rights) access() (a uverbs.Access) {
	for _, x := range []struct {
		right Rights
		a     uverbs.Access
	}{{CanRead, uverbs.RemoteRead}, {CanWrite, uverbs.RemoteWrite}, {CanAtomic, uverbs.RemoteAtomic}} {
		if r&x.right != 0 {
			a |= x.a
		}
	}
	return a
}

// A Token names memory that a peer has shared on a connection. It is valid on this connection only. A peer
// that invents or changes a token cannot reach memory that was not shared with it: its connection
// ends.
type Token struct {
	Addr   uint64
	Len    uint64 // in bytes
	Key    uint32
	Rights Rights
}

// TokenLen is the length of an encoded Token.
const TokenLen = 24

// An encoded token has Addr and Len in 8 bytes each, Key in 4, Rights in 1, the version of this format in 1, and 2
// bytes that are 0, which are for later versions. Numbers are little-endian.
const tokenVersion = 1

// AppendBinary appends the encoded token, which has TokenLen bytes. It never fails.
func (t Token) AppendBinary(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	b = le.AppendUint64(le.AppendUint64(b, t.Addr), t.Len)
	return append(le.AppendUint32(b, t.Key), byte(t.Rights), tokenVersion, 0, 0), nil
}

// MarshalBinary returns the encoded token. It never fails.
func (t Token) MarshalBinary() ([]byte, error) { return t.AppendBinary(nil) }

// UnmarshalBinary decodes a token. It returns [ErrProtocol] if b is not an encoded token, and [ErrVersion] if it has a
// later format. It cannot know whether the peer has shared such memory. It leaves out rights that this version does not
// know.
func (t *Token) UnmarshalBinary(b []byte) error {
	if len(b) != TokenLen {
		return fmt.Errorf("%w: a token of %d bytes: it has %d, as Token.MarshalBinary returns them", ErrProtocol, len(b),
			TokenLen)
	}
	if v := b[21]; v > tokenVersion {
		return fmt.Errorf("%w: a token of version %d: this side decodes version %d: update it", ErrVersion, v, tokenVersion)
	}
	le := binary.LittleEndian
	u := Token{Addr: le.Uint64(b), Len: le.Uint64(b[8:]), Key: le.Uint32(b[16:]), Rights: Rights(b[20]) & allRights}
	if b[21] == 0 || u.Len > 1<<62 || u.Addr+u.Len < u.Addr {
		return fmt.Errorf("%w: no token of version %d: %x", ErrProtocol, tokenVersion, b)
	}
	*t = u
	return nil
}

// check checks an operation on n bytes at off.
func (t *Token) check(off, n int, right Rights) error {
	switch {
	case off < 0 || n < 0 || uint64(off) > t.Len || uint64(n) > t.Len-uint64(off):
		return fmt.Errorf("%w: %d bytes at %d of a token for %d bytes", ErrBounds, n, off, t.Len)
	case t.Rights&right != right:
		return fmt.Errorf("%w: it has the rights %v, and this needs %v", ErrRights, t.Rights, right)
	}
	return nil
}
