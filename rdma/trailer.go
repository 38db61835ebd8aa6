package rdma

import (
	"encoding/binary"
	"fmt"
	"time"
	"unicode/utf8"
)

// A trailer is what a call or a reply has behind its body, or an offer of it behind the offer. It has fields, and in
// its last 2 bytes their length. Each field has a type, its length in 2 bytes, and as many bytes. A receiver skips
// fields that it does not know. That of a call needs featureTrailers, and that of a reply featureReplyTrailers.
type trailer struct {
	timeout time.Duration // of a call: until the caller's deadline, or 0 without one
	code    uint32        // of a reply that is an error, whose text is the body, or 0
	pairs   []byte        // the fields of metadata
}

// The types of fields.
const (
	fieldTimeout  = 1 // nanoseconds, in 8 bytes
	fieldMetadata = 2 // the length of a key, the key, and a value
	fieldCode     = 3 // in 4 bytes
)

const (
	trailerLen = 2 // of its end
	fieldLen   = 3 // without the bytes of the field
	timeoutLen = fieldLen + 8
	codeLen    = fieldLen + 4 // less than timeoutLen, and never beside it
	pairLen    = fieldLen + 1 // without key and value

	maxPairs    = 16   // of metadata
	maxMetadata = 1024 // bytes of keys and values
	maxKey      = 255  // bytes
	maxTrailer  = timeoutLen + maxPairs*pairLen + maxMetadata + trailerLen
)

// appendTo appends the encoded trailer.
func (t *trailer) appendTo(b []byte) []byte {
	le, first := binary.LittleEndian, len(b)
	if t.timeout > 0 {
		b = append(b, fieldTimeout, 8, 0)
		b = le.AppendUint64(b, uint64(t.timeout))
	}
	if t.code > 0 {
		b = append(b, fieldCode, 4, 0)
		b = le.AppendUint32(b, t.code)
	}
	b = append(b, t.pairs...)
	return le.AppendUint16(b, uint16(len(b)-first))
}

// size returns the length of the encoded trailer, or 0 if it has no fields.
func (t *trailer) size() int {
	n := len(t.pairs)
	if t.timeout > 0 {
		n += timeoutLen
	}
	if t.code > 0 {
		n += codeLen
	}
	if n == 0 {
		return 0
	}
	return n + trailerLen
}

// appendPair appends a field of metadata.
func appendPair(b []byte, key, value string) []byte {
	b = append(b, fieldMetadata)
	b = binary.LittleEndian.AppendUint16(b, uint16(1+len(key)+len(value)))
	return append(append(append(b, byte(len(key))), key...), value...)
}

// cutTrailer divides what a peer has sent into a body and the trailer behind it, which it checks. The trailer refers to
// the memory of b.
func cutTrailer(b []byte) (body []byte, t trailer, err error) {
	n := len(b) - trailerLen
	if n < 0 {
		return nil, t, fmt.Errorf("%w: a trailer of %d bytes: it has at least %d", ErrProtocol, len(b), trailerLen)
	}
	fields := int(binary.LittleEndian.Uint16(b[n:]))
	if fields > n || fields > maxTrailer-trailerLen {
		return nil, t, fmt.Errorf("%w: a trailer with fields of %d bytes: there are %d, and the limit is %d", ErrProtocol,
			fields, n, maxTrailer-trailerLen)
	}
	t, err = parseFields(b[n-fields : n])
	return b[:n-fields], t, err
}

// parseFields checks the fields of a trailer.
func parseFields(b []byte) (t trailer, err error) {
	pairs, first, size := 0, 0, 0
	for rest := b; len(rest) > 0; {
		kind, field, next, err := cutField(rest)
		if err != nil {
			return t, err
		}
		switch kind {
		case fieldTimeout:
			if err := t.parseTimeout(field); err != nil {
				return t, err
			}
		case fieldCode:
			if err := t.parseCode(field); err != nil {
				return t, err
			}
		case fieldMetadata:
			if err := checkPair(field); err != nil {
				return t, err
			}
			if pairs == 0 {
				first = len(b) - len(rest)
			}
			pairs, size = pairs+1, size+len(field)-1
		}
		rest = next
	}
	if pairs > maxPairs || size > maxMetadata {
		return t, fmt.Errorf("%w: metadata of %d pairs with %d bytes: there are up to %d pairs with %d", ErrProtocol,
			pairs, size, maxPairs, maxMetadata)
	}
	if pairs > 0 {
		t.pairs = b[first:]
	}
	return t, nil
}

// parseTimeout checks a field with a timeout.
func (t *trailer) parseTimeout(field []byte) error {
	if len(field) != 8 {
		return fmt.Errorf("%w: a timeout of %d bytes: it has 8", ErrProtocol, len(field))
	}
	n := time.Duration(binary.LittleEndian.Uint64(field))
	if n <= 0 || t.timeout > 0 {
		return fmt.Errorf("%w: a timeout of %d nanoseconds after one of %d", ErrProtocol, uint64(n), t.timeout)
	}
	t.timeout = n
	return nil
}

// parseCode checks a field with the code of an error.
func (t *trailer) parseCode(field []byte) error {
	if len(field) != 4 {
		return fmt.Errorf("%w: a code of %d bytes: it has 4", ErrProtocol, len(field))
	}
	code := binary.LittleEndian.Uint32(field)
	if code == 0 || t.code > 0 {
		return fmt.Errorf("%w: an error with code %d after one with %d", ErrProtocol, code, t.code)
	}
	t.code = code
	return nil
}

// cutField returns the first field of b, and what follows it.
func cutField(b []byte) (kind byte, field, rest []byte, err error) {
	if len(b) >= fieldLen {
		if n := int(binary.LittleEndian.Uint16(b[1:])); n <= len(b)-fieldLen {
			return b[0], b[fieldLen : fieldLen+n], b[fieldLen+n:], nil
		}
	}
	return 0, nil, nil, fmt.Errorf("%w: the last field of a trailer ends behind it: %x", ErrProtocol, b)
}

// checkPair checks a field of metadata.
func checkPair(field []byte) error {
	if len(field) < 2 || field[0] == 0 || int(field[0]) > len(field)-1 {
		return fmt.Errorf("%w: metadata of %d bytes whose key does not fit", ErrProtocol, len(field))
	}
	if key := field[1 : 1+field[0]]; !utf8.Valid(key) {
		return fmt.Errorf("%w: a key of metadata that is not UTF-8: %x", ErrProtocol, key)
	}
	return nil
}

// decodePairs returns metadata that was checked, or nil. Of pairs with the same key it has the last one.
func decodePairs(b []byte) map[string]string {
	if len(b) == 0 {
		return nil
	}
	pairs := map[string]string{}
	for len(b) > 0 {
		kind, field, rest, err := cutField(b)
		if err != nil {
			break // it was checked
		}
		if kind == fieldMetadata {
			n := 1 + int(field[0])
			pairs[string(field[1:n])] = string(field[n:])
		}
		b = rest
	}
	return pairs
}
