package rdma

import (
	"encoding/binary"
	"fmt"
)

// A hello is what each side sends when they connect, at the start of the private data. All versions of the protocol
// have these bytes, in little-endian order:
//
//	0	magic, "gRDM"
//	4	the lowest version that the side speaks
//	5	the highest
//	6	the length of the hello
//	7	the length of the program's private data behind it
//	8	features, in 4 bytes
//
// The sides use the highest version that both speak, and the features that both have. Version 1 goes on:
//
//	12	depth, in 2 bytes
//	14	offers
//	15	0, which a receiver ignores
//	16	eager, in 4 bytes
//	20	maxMessage, in 4 bytes
//	24	fields up to the length: each has a type, its length, and as many bytes
//
// The only field is of type 1, with the side's window in 2 bytes: see [hello.window]. A receiver skips fields that it
// does not know. What the peer has to understand needs a feature or a version.
type hello struct {
	versions   versions
	features   features
	depth      int    // messages that the peer may send before it gets credits
	eager      int    // length of the receives
	offers     int    // messages that may be offered at a time, and as many replies
	maxMessage int    // length of messages
	fields     []byte // encoded
	data       []byte // the private data of the program
	raw        []byte // encoded, with data, as a peer has sent it
}

const (
	helloLen   = 24 // without fields
	helloMagic = "gRDM"

	// Requests and replies of rdma_cm have room for 56 and 196 bytes, of which some are kept for fields.
	maxDialData   = 56 - helloLen - 8
	maxAcceptData = 196 - helloLen - 32
)

// versions are those of the protocol that a side speaks.
type versions struct{ lowest, highest uint8 }

// spoken are the versions that this package speaks.
var spoken = versions{1, 1}

func (v versions) String() string {
	if v.lowest == v.highest {
		return fmt.Sprint("version ", v.lowest)
	}
	return fmt.Sprintf("versions %d to %d", v.lowest, v.highest)
}

// features are what a peer may lack, one bit each.
type features uint32

const (
	featureCancel        features = 1 << iota // kindCancel
	featureTrailers                           // kindCallTrailer and kindError
	featureTLS                                // the connection begins with a handshake of TLS: only with Options.TLS
	featureWindow                             // more credits than the peer's depth, up to the window in its hello
	featureCanSeal                            // the side can seal, and has room for that in receives: only with featureTLS
	featureWantsSeal                          // the side wants to: with Options.Seal
	featureReplyTrailers                      // kindReplyTrailer, beside featureTrailers

	allFeatures = featureCancel | featureTrailers | featureWindow | featureReplyTrailers
)

// fieldWindow is the type of the field with the window.
const fieldWindow = 1

// guaranteed returns for how many messages a peer has credits from the beginning, if it may have depth.
func guaranteed(depth int) int { return min(depth, 2) }

// windowField returns the field with a window.
func windowField(window int) []byte {
	return binary.LittleEndian.AppendUint16([]byte{fieldWindow, 2}, uint16(window))
}

// window returns how many messages the side receives before its program has released one, if it gives all credits. It
// is the depth if the side has sent no other.
func (h *hello) window() int {
	for b := h.fields; len(b) > 0; b = b[2+int(b[1]):] {
		if b[0] == fieldWindow && b[1] == 2 {
			return int(binary.LittleEndian.Uint16(b[2:]))
		}
	}
	return h.depth
}

// A role is client or server.
type role int

const (
	client role = iota
	server
)

func (r role) String() string { return [...]string{"client", "server"}[r] }

// other returns the role of the other side.
func (r role) other() role { return client + server - r }

func (h *hello) bytes() []byte {
	le := binary.LittleEndian
	b := append(make([]byte, 0, helloLen+len(h.fields)+len(h.data)), helloMagic...)
	b = append(b, h.versions.lowest, h.versions.highest, byte(helloLen+len(h.fields)), byte(len(h.data)))
	b = le.AppendUint32(b, uint32(h.features))
	b = append(le.AppendUint16(b, uint16(h.depth)), byte(h.offers), 0)
	b = le.AppendUint32(le.AppendUint32(b, uint32(h.eager)), uint32(h.maxMessage))
	return append(append(b, h.fields...), h.data...)
}

// parseHello checks the private data of a peer, which has the given role.
func parseHello(b []byte, peer role) (h hello, err error) {
	if len(b) < helloLen || string(b[:4]) != helloMagic {
		return h, fmt.Errorf("%w: its private data has no hello: both sides have to use package rdma", ErrProtocol)
	}
	h.versions = versions{b[4], b[5]}
	if err := h.versions.check(peer); err != nil {
		return h, err
	}
	n, data := int(b[6]), int(b[7])
	switch {
	case n < helloLen || n > len(b):
		return h, fmt.Errorf("%w: a hello of %d bytes: it has %d to %d", ErrProtocol, n, helloLen, len(b))
	case data > len(b)-n:
		return h, fmt.Errorf("%w: %d bytes of private data: behind the hello of %d bytes is room for %d", ErrProtocol, data,
			n, len(b)-n)
	}
	if err := checkFields(b[helloLen:n]); err != nil {
		return h, err
	}
	le := binary.LittleEndian
	h.features = features(le.Uint32(b[8:]))
	h.depth, h.offers, h.eager = int(le.Uint16(b[12:])), int(b[14]), int(le.Uint32(b[16:]))
	h.maxMessage = int(le.Uint32(b[20:]))
	h.raw = append([]byte(nil), b[:n+data]...)
	h.fields, h.data = h.raw[helloLen:n], h.raw[n:]
	return h, h.check()
}

// check checks the limits that a peer has set.
func (h *hello) check() error {
	for _, f := range []struct {
		what          string
		value, lo, hi int
	}{
		{"a depth of %d messages: a side has %d to %d", h.depth, 1, maxDepth},
		{"a window of %d messages: with its depth, it has %d to %d", h.window(), h.depth, maxDepth},
		{"receives of %d bytes: they have %d to %d", h.eager, minEager, maxEager},
		{"%d offers at a time: a side has %d to %d", h.offers, 0, maxOffers},
		{"messages of up to %d bytes: with its receives, it permits %d to %d", h.maxMessage, h.eager, maxMessage},
	} {
		if f.value < f.lo || f.value > f.hi {
			return fmt.Errorf("%w: "+f.what, ErrProtocol, f.value, f.lo, f.hi)
		}
	}
	return nil
}

// check checks the versions that a peer speaks, which has the given role.
func (v versions) check(peer role) error {
	if v.lowest > v.highest || v.lowest == 0 {
		return fmt.Errorf("%w: a hello with versions %d to %d", ErrProtocol, v.lowest, v.highest)
	}
	if v.lowest <= spoken.highest && v.highest >= spoken.lowest {
		return nil
	}
	ofClient, ofServer, old := v, spoken, "server"
	if peer == server {
		ofClient, ofServer = spoken, v
	}
	if ofClient.highest < ofServer.highest {
		old = "client"
	}
	return fmt.Errorf("%w: the client speaks %v, the server %v: update the %s", ErrVersion, ofClient, ofServer, old)
}

// checkFields checks that fields are complete.
func checkFields(b []byte) error {
	for len(b) > 0 {
		if len(b) < 2 || int(b[1]) > len(b)-2 {
			return fmt.Errorf("%w: the last field of its hello ends behind the hello: %x", ErrProtocol, b)
		}
		b = b[2+int(b[1]):]
	}
	return nil
}
