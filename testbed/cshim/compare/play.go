package compare

func (c *Comparison) completeSends() {
	if c.posted[sends] > 0 && !c.flushed[sends] {
		var n int
		n, c.flushed[sends] = c.device.CompleteSends(c, c.posted[sends])
		c.posted[sends] -= n
	}
}

func (c *Comparison) completeRecvs() {
	if c.posted[receives] > 0 && !c.flushed[receives] {
		var n int
		n, c.flushed[receives] = c.device.CompleteRecvs(c, c.posted[receives])
		c.posted[receives] -= n
	}
}

func (c *Comparison) poll() string {
	n := 1 + c.Rand.IntN(8)
	return c.step("poll", func(s Side) string { return s.Poll(n) })
}

func (c *Comparison) pollAll() {
	for c.step("poll", func(s Side) string { return s.Poll(16) }) != "polled 0" {
	}
	for queue, flushed := range c.flushed {
		if flushed {
			c.posted[queue] = 0
		}
	}
	c.held = c.posted
}

// drain completes and polls everything.
func (c *Comparison) drain() {
	for queue, complete := range []func(){c.completeSends, c.completeRecvs} {
		for c.posted[queue] > 0 && !c.flushed[queue] {
			complete()
			if c.Rand.IntN(4) == 0 {
				c.poll()
			}
		}
	}
	c.pollAll()
}

// end ends the QP: the programs flush what is posted, and what they post then.
func (c *Comparison) end() {
	if c.rules.Errs {
		c.step("error", Side.Err)
	}
	c.device.(Ender).End(c)
	c.flushed = [2]bool{true, true}
	for range c.Rand.IntN(4) {
		c.poll()
	}
	c.pollAll()
	c.send()
	c.poll()
	c.recv()
	c.pollAll()
	c.reset()
}

func (c *Comparison) reset() {
	if c.rules.Drains {
		c.drain()
		c.send()
	}
	psn := c.psn()
	if c.Size.Shared {
		c.pollAll()
	}
	if c.rules.Renews {
		c.step("close", Side.Close)
		c.step("create", func(s Side) string { return s.Create(c.Size, psn) })
	} else {
		c.step("reset", func(s Side) string { return s.Reset(psn) })
	}
	c.posted[sends], c.held[sends], c.flushed = 0, 0, [2]bool{}
	if !c.Size.Shared {
		c.posted[receives], c.held[receives] = 0, 0
	}
	c.device.Reset()
}

// event completes sends, reads the event, and arms the CQ again.
func (c *Comparison) event() {
	if c.posted[sends] == 0 || c.flushed[sends] {
		return
	}
	read := Side.Event
	if c.rules.Rearms {
		read = func(s Side) string { return s.Event() + ", " + s.Arm(false) }
	}
	if c.armed {
		c.completeSends()
		c.step("event", read)
	}
	if c.armed && c.rules.Rearms {
		return
	}
	c.armed = true
	c.pollAll() // so that there is no event yet
	if c.rules.Solicited {
		c.step("arm for solicited completions", func(s Side) string { return s.Arm(true) })
	}
	c.step("arm", func(s Side) string { return s.Arm(false) })
}

// mostDeferred is the size up to which a provider may leave the doorbell to a later poll.
const mostDeferred = 1<<14 - 1

// resize resizes the CQ. Completions before and after it are polled together.
func (c *Comparison) resize() {
	if !c.rules.Resizes || c.entries > mostDeferred {
		return
	}
	if c.Rand.IntN(2) == 0 {
		c.completeSends()
		c.completeRecvs()
	}
	c.entries += c.Rand.IntN(50)
	if c.Rand.IntN(32) == 0 {
		c.pollAll() // C tells the device only of entries with completions
		c.entries = mostDeferred + 1 + c.Rand.IntN(1000)
	}
	c.step("resize", func(s Side) string { return s.Resize(c.entries) })
	for range c.Rand.IntN(4) {
		c.completeSends()
		c.completeRecvs()
		c.poll()
	}
	c.pollAll() // C does not drop those before it with the QP
}

// rare are steps that end a life of the QP.
func (c *Comparison) rare() {
	_, ends := c.device.(Ender)
	switch {
	case c.Size.Shared && c.rules.Resets:
		c.reset()
	case ends && (c.flushed != [2]bool{} || c.Rand.IntN(8) == 0):
		c.end()
	}
}

// Play executes random steps, and ends.
func (c *Comparison) Play(steps int) {
	for range steps {
		switch c.Rand.IntN(32) {
		case 0, 1, 2, 3, 4, 5, 6:
			c.send()
		case 7, 8, 9, 10, 11:
			c.recv()
		case 12, 13, 14, 15, 16, 17:
			for range c.Rand.IntN(4) {
				c.completeSends()
			}
			for range c.Rand.IntN(8) {
				c.completeRecvs()
			}
		case 18, 19, 20, 21, 22, 23:
			c.poll()
		case 24, 25:
			c.event()
		case 27:
			c.drain()
		case 28:
			c.rare()
		case 29:
			if c.Rand.IntN(8) == 0 {
				c.reset()
			}
		case 30:
			c.resize()
		}
	}
	c.drain()
	c.sides[0].(*CSide).End()
}
