package onesided

import (
	"context"

	"github.com/goverbs/goverbs/uverbs"
)

// A transport is a way to reach a client's memory.
type transport interface {
	// name is the word in tokens.
	name() string
	// open returns the client's end.
	open(p *Pool) (end, error)
	// accept returns the server's link to the end that peer describes, and the address
	// that this end must connect to, or "" if it need not.
	accept(p *Pool, peer string) (l link, reply string, err error)
}

// An end is a client's side, which the server reaches its memory through. One request uses it at
// a time.
type end interface {
	peer() string
	connected() bool
	connect(reply string) error
	Close() error
}

// A link is a server's side. One request uses it at a time.
type link interface {
	// transfer writes b to the memory of the token, or reads b from it. After an error b may
	// still be in use until Close has returned.
	transfer(ctx context.Context, op uverbs.Opcode, b uverbs.SGE, t Token) error
	Close() error
}

// transports are those of the client, the best one first. A server accepts all of them.
var transports = []transport{rc{}}
