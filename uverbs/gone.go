package uverbs

// lose has the queues say that the device is gone. Their memory and registers
// take what is written to them, whatever has become of the device: without it,
// posts would succeed and polls find nothing for ever. It is called when the
// kernel has told.
func (c *Context) lose() {
	if c.gone.Swap(true) {
		return
	}
	c.mu.Lock()
	var all []any
	for _, o := range c.byID {
		all = append(all, o)
	}
	c.mu.Unlock()
	for _, o := range all {
		switch o := o.(type) {
		case *QP:
			o.sendGate.lose()
			o.recvGate.lose()
		case *SRQ:
			o.gate.lose()
		case *WQ:
			o.gate.lose()
		case *CQ:
			o.lose()
		}
	}
}

// lose wakes all waiters, who find the queue ready to tell. One that is being
// made is lost by its maker.
func (q *CQ) lose() {
	if !q.usable.Load() {
		return
	}
	if p, ok := q.impl.(ProviderLoser); ok {
		p.Lose()
	}
	if q.channel != nil {
		q.wake()
	}
}
