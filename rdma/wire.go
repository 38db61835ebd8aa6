package rdma

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// This file has what is sent on a connection, after the sides have exchanged a [hello]: the immediate data of each
// SEND, and bodies.
//
// A SEND carries one message, and its immediate data says what it is. Its body is the message itself
// or, if that is longer than the receives of the peer, an [offer] from which the peer reads it.

const (
	maxCalls   = 1024 // that wait for a reply in each direction
	inlineSize = 128  // SENDs up to this length need no memory
)

// kind is what a SEND carries. The values are part of the protocol.
type kind uint32

const (
	kindMessage kind = iota // a message; its number is 0 or one more than the number of an offer, as in kindTaken
	kindCall                // a message that wants a reply, with a number
	kindReply               // the reply to the call with this number
	kindOffer               // an offer of a message that is read by the peer; its body says which kind
	kindTaken               // the peer has read the message of the offer with this number
	kindCredits             // nothing but credits; the number counts credits for kindCancel
	kindEnd                 // the last SEND: the peer closes the connection; its body is a farewell
	kindCancel              // no caller waits for the reply to the call with this number: needs featureCancel
	kinds

	// variant is a bit of kinds that are like those without it but for their bodies. The next two need featureTrailers.
	variant         kind = 8
	kindCallTrailer      = kindCall | variant  // a call with a trailer behind its body
	kindError            = kindReply | variant // the reply is an error
	// With featureReplyTrailers, a kindError is a reply with a trailer behind its body, which says whether it is an error.
	kindReplyTrailer = kindError

	// These need featureCanSeal.
	kindWritten = kindMessage | variant // a WRITE with immediate data: see postWritten
	kindSeal    = kindCredits | variant // the first SEND that is sealed
)

// base returns the kind without variant.
func (k kind) base() kind { return k &^ variant }

// hasBody reports whether a SEND of this kind may have a body. Except for the end, it needs a credit then: one for
// replies, also if a reply is offered, or one for messages. The receiver has a few more receives than credits for the
// end and for the kinds without a body, whose number is limited.
func (k kind) hasBody() bool { return k.base() <= kindOffer || k == kindEnd }

// credits are those that a SEND carries: for how many more SENDs its sender has receives.
type credits struct{ messages, replies int }

// The immediate data has a kind, credits for messages and for replies, and the number of a call or an offer.
const (
	immCreditBits = 12
	immReplyBits  = 6
	immNumberBits = 10

	immReplyShift  = immNumberBits
	immCreditShift = immReplyShift + immReplyBits
	immKindShift   = immCreditShift + immCreditBits

	maxCredits = 1<<immCreditBits - 1
	maxReplies = 1<<immReplyBits - 1
	maxNumber  = 1<<immNumberBits - 1
)

func packImm(k kind, n credits, number int) uint32 {
	return uint32(k)<<immKindShift | uint32(n.messages)<<immCreditShift | uint32(n.replies)<<immReplyShift |
		uint32(number)
}

func unpackImm(imm uint32) (k kind, n credits, number int) {
	n.messages = int(imm >> immCreditShift & maxCredits)
	n.replies = int(imm >> immReplyShift & maxReplies)
	return kind(imm >> immKindShift), n, int(imm & maxNumber)
}

// An offer describes a message that the peer is to read.
type offer struct {
	kind   kind // of the message
	number int  // of the call
	key    uint32
	addr   uint64
	length uint64
}

const (
	offerLen       = 24
	sealedOfferLen = offerLen + longSealLen
)

func (o *offer) put(b *[offerLen]byte) {
	le := binary.LittleEndian
	b[0], b[1] = byte(o.kind), 0
	le.PutUint16(b[2:], uint16(o.number))
	le.PutUint32(b[4:], o.key)
	le.PutUint64(b[8:], o.addr)
	le.PutUint64(b[16:], o.length)
}

// parseOffer checks an offer that a peer has sent. Its address and key are checked by the peer's
// device.
func parseOffer(b []byte, maxMessage int) (o offer, err error) {
	if len(b) != offerLen {
		return o, fmt.Errorf("%w: an offer of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	o = offer{kind: kind(b[0]), number: int(le.Uint16(b[2:])), key: le.Uint32(b[4:]), addr: le.Uint64(b[8:]),
		length: le.Uint64(b[16:])}
	switch {
	case o.kind > kindReply && o.kind != kindCallTrailer && o.kind != kindReplyTrailer:
		return o, fmt.Errorf("%w: an offer of a message of kind %d", ErrProtocol, o.kind)
	case o.length == 0 || o.length > uint64(maxMessage):
		return o, fmt.Errorf("%w: an offer of a message of %d bytes: the limit is %d", ErrProtocol, o.length, maxMessage)
	}
	return o, nil
}

// writtenLen is the length of a kindWritten: the immediate data and the length of a WRITE.
const writtenLen = 8

// A farewell is what a side sends with its end. With the counts and the credits that come with it, the peer can compute
// how many of its messages the program has not received.
type farewell struct {
	held   int         // messages of the peer that the program has received and not released
	calls  int         // calls of the peer that the program has received and not replied to
	reason *CloseError // of CloseWithError, or nil
}

const (
	farewellLen  = 14 // without the text of a reason
	maxCloseText = inlineSize - farewellLen
)

// appendTo appends the encoded farewell, which has at most inlineSize bytes.
func (f *farewell) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint16(le.AppendUint16(b, uint16(f.held)), uint16(f.calls))
	if f.reason == nil {
		return append(b, make([]byte, farewellLen-4)...)
	}
	b = append(b, 1, byte(len(f.reason.Text)))
	return append(le.AppendUint64(b, f.reason.Code), f.reason.Text...)
}

// parseFarewell checks the body of a peer's end. most is how many messages of this side its program can hold.
func parseFarewell(b []byte, most int) (f farewell, err error) {
	if len(b) < farewellLen || len(b) != farewellLen+int(b[5]) {
		return f, fmt.Errorf("%w: an end of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	f.held, f.calls = int(le.Uint16(b)), int(le.Uint16(b[2:]))
	code, text := le.Uint64(b[6:]), string(b[farewellLen:])
	switch {
	case f.held > most || f.calls > maxCalls:
		return f, fmt.Errorf("%w: its program has %d messages and %d calls, of %d and %d that it can have", ErrProtocol,
			f.held, f.calls, most, maxCalls)
	case b[4] > 1 || b[4] == 0 && (code != 0 || text != ""):
		return f, fmt.Errorf("%w: an end of kind %d", ErrProtocol, b[4])
	case len(text) > maxCloseText || !utf8.ValidString(text):
		return f, fmt.Errorf("%w: a reason of %d bytes, which has to be UTF-8 of at most %d", ErrProtocol, len(text),
			maxCloseText)
	case b[4] == 1:
		f.reason = &CloseError{Code: code, Text: text, Remote: true}
	}
	return f, nil
}

// cutText returns what text has in its first n bytes, without what is not UTF-8.
func cutText(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	n = min(len(text), n)
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
