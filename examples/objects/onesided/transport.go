package onesided

import (
	"context"
	"fmt"

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

// transports are those that a server accepts. The first one is the client's default.
var transports = []transport{rc{}, dc{}}

// transportOf returns the transport of a name.
func transportOf(name string) (transport, error) {
	for _, tr := range transports {
		if tr.name() == name {
			return tr, nil
		}
	}
	return nil, fmt.Errorf("onesided: no transport %q", name)
}

// request returns the request that moves b to or from the memory of the token.
func (t Token) request(op uverbs.Opcode, b uverbs.SGE) uverbs.SendWR {
	return uverbs.SendWR{Opcode: op, Flags: uverbs.Signaled, SGL: []uverbs.SGE{b}, RemoteAddr: t.Addr, RKey: t.RKey}
}

// move posts a request and waits until it has completed.
func move(ctx context.Context, qp *uverbs.QP, cq *uverbs.CQ, wr uverbs.SendWR) error {
	if _, err := qp.PostSend(wr); err != nil {
		return err
	}
	var wc [1]uverbs.WC
	if _, err := cq.PollWait(ctx, wc[:]); err != nil {
		return err
	}
	if err := wc[0].Err(); err != nil {
		return fmt.Errorf("onesided: %v of %d bytes: %w", wr.Opcode, wr.SGL[0].Length, err)
	}
	return nil
}
