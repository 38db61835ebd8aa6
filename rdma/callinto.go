package rdma

import (
	"context"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// CallInto is [Conn.Call] with a buffer for the reply, of up to into.Len() bytes: of [Conn.BufferOf], for memory of the
// program, or of [Conn.Alloc]. A reply longer than this side's Options.EagerSize is read straight into it by the
// device. A shorter one is copied, which is cheap. The connection registers no memory for the reply.
//
// The buffer belongs to the call, whatever it returns. The reply that CallInto returns is in the buffer, and its
// Release releases it; the bytes of a [Region] stay as they are. If CallInto returns an error, the buffer is released
// when the device does not use it any more: the memory of Alloc is not used again before. A reply that comes when the
// call has returned is not read. But if ctx or the connection ends while a reply is being read, the bytes of a Region
// may change until [Conn.Flush] or Close of the region has returned nil.
//
// CallInto returns [ErrTooLong] if the reply is longer than the buffer: the peer has handled the call, the reply is
// dropped, and the connection goes on. Options.MaxMessage limits replies as well. It sends nothing and returns
// [ErrForeign] for memory of another device and for that of a message that is not longer than Options.EagerSize, and
// [ErrReadOnly] for a [ReadOnlyRegion]. Memory of a [RegionFunc] cannot be copied to: a short reply stays in memory of
// the connection, and [Message.Bytes] returns it, which returns nil for a reply in the region. On a sealed connection
// ([Conn.Sealed]), CallInto returns [uverbs.ErrInvalid] for such memory and sends nothing; other memory has the sealed
// bytes of a long reply until CallInto has opened it.
func (c *Conn) CallInto(ctx context.Context, b []byte, into Buffer) (Message, error) {
	dst, err := c.own(into)
	if err != nil {
		return Message{}, c.opError("call", err)
	}
	defer dst.drop()
	m, err := c.call(ctx, dst, len(b), true, func(k kind, number int, t []byte) error {
		return c.send(ctx, k, number, b, t)
	})
	if err != nil || m.Buffer.m == dst || dst.bytes == nil {
		return m, err
	}
	short := m.Buffer
	copy(dst.bytes, short.Bytes())
	m.Buffer = c.takeMessage(dst, m.n)
	short.Release()
	return m, nil
}

// own makes CallInto the owner of a buffer of the program. It releases a buffer that it refuses.
func (c *Conn) own(into Buffer) (*memory, error) {
	if err := c.hold("CallInto", into); err != nil {
		into.disown()
		return nil, err
	}
	m := into.m
	err := m.writable()
	if c.seal != nil && m.bytes == nil {
		err = fmt.Errorf("%w: a reply into a RegionFunc, whose memory this process cannot open: use a connection "+
			"without Options.Seal", uverbs.ErrInvalid)
	}
	if err != nil {
		into.disown()
		m.drop()
		return nil, err
	}
	if !into.disown() { // the program has released it meanwhile
		m.drop()
		return nil, ErrReleased
	}
	return m, nil
}
