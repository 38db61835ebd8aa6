package rdma

import "fmt"

// This file has metadata of replies, and the trailers of replies and errors.

// SetReplyMetadata adds a pair of metadata to the reply to a call, in place of a pair with the same key. The caller
// reads it by [Message.Metadata] of the reply or, if the reply is an error, by [CallError.Metadata]. It serves what
// belongs to the reply and not to its bytes: a version, the cost, when to try again. The limits are those of
// [WithMetadata], with errors that match [ErrTooLong] or [uverbs.ErrInvalid]; then the pairs before stay. It returns
// [ErrNotCall] if the message is not a call or has its reply.
//
// A peer whose version of this package accepts no metadata in replies gets the reply without it.
func (m Message) SetReplyMetadata(key, value string) error {
	if m.c == nil || m.kind != kindCall {
		return ErrNotCall
	}
	if err := m.setReplyMetadata(key, value); err != nil {
		return m.c.opError("reply to", err)
	}
	return nil
}

func (m Message) setReplyMetadata(key, value string) error {
	c := m.c
	c.mu.Lock()
	defer c.unlock()
	a := &c.calls.asked[m.number]
	if a.serial != m.serial {
		return ErrNotCall
	}
	next := a.out.with(key, value)
	if next.err != nil {
		return next.err
	}
	// Beside metadata, there is room for the code of an error or for an offer.
	t := trailer{code: uint32(CodeUnknown), pairs: next.pairs}
	if n := t.size() + c.offerLen(); n > c.remote.eager {
		return fmt.Errorf("%w: the metadata of a reply needs %d bytes, and the peer's Options.EagerSize is %d: send less, "+
			"or set it to more", ErrTooLong, n, c.remote.eager)
	}
	a.out = next
	return nil
}

// replyTrailer returns the kind of a reply with a body of n bytes, and its encoded trailer if it has metadata. Copied
// is whether a trailer can be behind the body.
func (c *Conn) replyTrailer(out *outgoing, n int, copied bool) (kind, []byte, error) {
	if out == nil || !c.hasReplyTrailers() {
		return kindReply, nil, nil
	}
	t := trailer{pairs: out.pairs}
	if !c.fits(n, copied, &t) {
		return 0, nil, fmt.Errorf("%w: the metadata of a reply needs %d bytes, which do not fit into the peer's "+
			"Options.EagerSize of %d with a reply of %d bytes: send less, or set it to more", ErrTooLong, t.size(),
			c.remote.eager, n)
	}
	return kindReplyTrailer, t.appendTo(nil), nil
}

// encodeError returns the body and the trailer of a kindError, with the metadata out.
func (c *Conn) encodeError(e *CallError, out *outgoing) (body, t []byte) {
	eager := c.remote.eager
	if !c.hasReplyTrailers() {
		return e.bytes(eager), nil
	}
	x := trailer{code: uint32(e.Code)}
	if out != nil {
		x.pairs = out.pairs
	}
	return []byte(cutText(e.Text, min(maxErrorText, eager-x.size()))), x.appendTo(nil)
}

// fits reports whether a trailer can be sent with a body of n bytes, or with its offer. A deadline alone does not make
// a body an offer.
func (c *Conn) fits(n int, copied bool, t *trailer) bool {
	eager, size := c.remote.eager, t.size()
	return copied && n+size <= eager ||
		c.offerLen()+size <= eager && n > 0 && len(c.windows) > 0 && (n > eager || len(t.pairs) > 0)
}
