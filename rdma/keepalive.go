package rdma

import "time"

// startKeepAlive starts the timer that asks the peer's device for a sign of life: a WRITE of no bytes, which
// the device acknowledges. Without reply, it fails when its retries are used up, and that ends the connection.
func (c *Conn) startKeepAlive() {
	d := c.options.KeepAlive
	if d <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepAlive = time.AfterFunc(d, func() { c.probe(d) })
}

func (c *Conn) probe(d time.Duration) {
	c.mu.Lock()
	defer c.unlock()
	if c.err != nil || c.closing {
		return
	}
	if !c.busy && c.probed <= c.head && c.space() > 0 {
		seq, flags := c.next(true)
		b := c.qp.StartSend()
		b.Write(seq, flags, 0, 0)
		if err := b.Submit(); err != nil {
			c.fail(err)
			return
		}
		c.posted(request{}, flags)
		c.probed = c.tail
	}
	c.busy = false
	c.keepAlive.Reset(d)
}

// checkAlive is Err, for a connection on which no call waits: it handles how a keep-alive has completed.
func (c *Conn) checkAlive() error {
	c.mu.Lock()
	if c.probed > c.head {
		c.look()
	}
	c.unlock()
	return c.Err()
}
