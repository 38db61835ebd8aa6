package engine

import (
	"container/list"

	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// maxConnections bounds the connections of all DCTs of a device, and maxSearch the search for one to replace.
const (
	maxConnections = 4096
	maxSearch      = 64
)

// An initiator is a DCI that sends to a DCT of this device.
type initiator struct {
	target uint32
	qpn    uint32
	lid    uint16
	gid    [16]byte
}

// A connection is a DCT's end of the connection with an initiator. After its end it remains for late packets,
// until others need the place.
type connection struct {
	key      initiator
	target   *target
	number   uint64
	endpoint *transport.Endpoint
	place    *list.Element
	token    uint32 // in page faults, where it does not collide with the numbers of queue pairs
}

// incoming has the connections of all DCTs.
type incoming struct {
	connections map[initiator]*connection
	order       *list.List // the most recently used first
	tokens      map[uint32]*connection
	next        uint32 // token
}

// firstToken is above the numbers of queue pairs; tokens have 24 bits.
const firstToken = 1 << 23

func newIncoming() incoming {
	return incoming{make(map[initiator]*connection), list.New(), make(map[uint32]*connection), firstToken}
}

// newToken returns a token that is not in use.
func (in *incoming) newToken() uint32 {
	for {
		n := in.next
		if in.next++; in.next == 1<<24 {
			in.next = firstToken
		}
		if in.tokens[n] == nil {
			return n
		}
	}
}

// add adds a connection. It returns nil if all places are in use.
func (in *incoming) add(key initiator, t *target) *connection {
	if len(in.connections) >= maxConnections && !in.replace() {
		return nil
	}
	c := &connection{key: key, target: t, token: in.newToken()}
	h := t.qp.hca
	c.endpoint = transport.New(h.config.Loop, &h.port, &connectionQueues{queues{t.qp, c.token}, c}, t.qp.transport())
	c.place = in.order.PushFront(c)
	in.connections[key], in.tokens[c.token] = c, c
	t.links++
	return c
}

// replace removes the connection that has been idle longest. It reports whether there is one.
func (in *incoming) replace() bool {
	e := in.order.Back()
	for range maxSearch {
		if e == nil {
			return false
		}
		if c := e.Value.(*connection); c.endpoint.Idle() {
			in.drop(c)
			return true
		}
		e = e.Prev()
	}
	return false
}

func (in *incoming) drop(c *connection) {
	c.target.links--
	in.order.Remove(c.place)
	delete(in.connections, c.key)
	delete(in.tokens, c.token)
}

// remove removes the connections of a DCT. With flush, receive requests in use are completed with an error.
func (in *incoming) remove(t *target, flush bool) {
	s := transport.OK
	if flush {
		s = transport.Flushed
	}
	for e := in.order.Front(); e != nil && t.links > 0; {
		c := e.Value.(*connection)
		if e = e.Next(); c.target == t {
			in.drop(c)
			c.end(s)
		}
	}
}
