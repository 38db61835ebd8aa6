package rdma

// Stats are counters of a connection since its begin.
type Stats struct {
	Sent, SentBytes         uint64 // messages
	Received, ReceivedBytes uint64 // messages that Recv and Call have returned
	Operations              uint64 // one-sided
	Stalls                  uint64 // calls that waited for credits or for room in the send queue
}

// Stats returns the connection's counters.
func (c *Conn) Stats() Stats {
	c.mu.Lock()
	defer c.unlock()
	return c.stats
}
