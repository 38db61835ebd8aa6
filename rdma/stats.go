package rdma

import "time"

// Stats say what a connection has done since its begin, and what it does now.
type Stats struct {
	Sent, SentBytes         uint64        // messages, calls and replies
	Received, ReceivedBytes uint64        // messages and replies that Recv, Handle and Call have returned
	Operations              uint64        // one-sided
	Stalls                  uint64        // calls that waited for credits or for room in the send queue
	StallTime               time.Duration // of them in all
	CallErrors              uint64        // calls of Call and CallBuffer that have returned an error
	CallTimes               Histogram     // of those that have returned a reply

	Credits    int   // messages that the peer has receives for; the next Send waits if it is 0
	Unreceived int   // messages that have arrived, and that the program has not received; 0 after Close
	Requests   int   // in the send queue
	CallsOut   int   // calls of this side without a reply
	CallsIn    int   // calls of the peer that the program has received, without a reply
	Registered int64 // bytes of memory for receives of the connection
	Pooled     int64 // bytes of memory for buffers and long messages of all connections through the same device
}

// Stats returns what the connection has done, also after its end. It costs about as much as a Send and does not wait.
func (c *Conn) Stats() Stats {
	pooled := c.pool.registered()
	c.mu.Lock()
	defer c.unlock()
	k := &c.stats
	s := Stats{Sent: k.sent, SentBytes: k.sentBytes, Received: k.received, ReceivedBytes: k.receivedBytes,
		Operations: k.operations, Stalls: k.stalls, StallTime: k.stallTime, CallErrors: k.callErrors,
		Registered: c.registered.Load(), Pooled: pooled}
	if k.callTimes != nil {
		s.CallTimes = *k.callTimes
	}
	if c.usable() == nil {
		s.Credits, s.Requests, s.CallsOut, s.CallsIn = c.messages.credits, int(c.tail-c.head), c.callsOut(), c.callsIn()
	}
	if !c.closing {
		s.Unreceived = c.count
	}
	return s
}
