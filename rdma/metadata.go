package rdma

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/goverbs/goverbs/uverbs"
)

// An outgoing is the metadata that a context has for calls, encoded.
type outgoing struct {
	pairs []byte
	count int
	size  int   // of keys and values, in bytes
	err   error // what Call returns; nil for replies
}

type outgoingKey struct{}

// WithMetadata returns a context whose calls send a pair of metadata to the peer's handler, beside those that ctx has
// for its calls, and in place of a pair with the same key. It serves what belongs to a call and not to its request: a
// tenant, the id of a trace, a credential. [Message.Metadata] returns it on the other side. The metadata of a request
// is not that of the calls which its handler makes. A reply has metadata of its own: see [Message.SetReplyMetadata].
//
// A call has up to 16 pairs, and keys and values together up to 1024 bytes, or what fits into Options.EagerSize of the
// peer. A key has 1 to 255 bytes of UTF-8, and a value may have any bytes. [Conn.Call] and [Conn.CallBuffer] return
// [ErrTooLong] or [uverbs.ErrInvalid] otherwise, and [ErrNoMetadata] if the peer's version of this package does not
// accept metadata. They send nothing then.
func WithMetadata(ctx context.Context, key, value string) context.Context {
	before, _ := ctx.Value(outgoingKey{}).(*outgoing)
	return context.WithValue(ctx, outgoingKey{}, before.with(key, value))
}

// with returns metadata with a further pair. o may be nil.
func (o *outgoing) with(key, value string) *outgoing {
	next := &outgoing{}
	if o != nil {
		next.err = o.err
		for rest := o.pairs; len(rest) > 0; {
			_, field, after, err := cutField(rest)
			if err != nil {
				break // with has encoded it
			}
			if string(field[1:1+field[0]]) != key {
				next.pairs = append(next.pairs, rest[:len(rest)-len(after)]...)
				next.count, next.size = next.count+1, next.size+len(field)-1
			}
			rest = after
		}
	}
	if next.err == nil {
		next.err = checkOutgoing(key, next.count+1, next.size+len(key)+len(value))
	}
	if next.err == nil {
		next.pairs = appendPair(next.pairs, key, value)
		next.count, next.size = next.count+1, next.size+len(key)+len(value)
	}
	return next
}

// checkOutgoing checks metadata with a new key.
func checkOutgoing(key string, count, size int) error {
	switch {
	case key == "" || len(key) > maxKey || !utf8.ValidString(key):
		return fmt.Errorf("%w: a key of metadata with %d bytes, %.40q: use 1 to %d bytes of UTF-8", uverbs.ErrInvalid,
			len(key), key, maxKey)
	case count > maxPairs:
		return fmt.Errorf("%w: metadata of %d pairs: a call or reply has at most %d: send the others in its bytes",
			ErrTooLong, count, maxPairs)
	case size > maxMetadata:
		return fmt.Errorf("%w: metadata of %d bytes: a call or reply has at most %d: send what is longer in its bytes",
			ErrTooLong, size, maxMetadata)
	}
	return nil
}
