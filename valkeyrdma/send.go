package valkeyrdma

import (
	"context"

	"github.com/goverbs/goverbs/uverbs"
)

// sender is a connection's part for requests of this side.
type sender struct {
	tail    uint64        // number of the next request, its WRID
	done    uint64        // requests before it have completed with success
	posted  [sends]uint32 // bytes of the send buffer that each request uses, by number, modulo the length
	quiet   int           // requests since the last one that has a completion
	quietly int           // bytes of the send buffer that they use
	inline  int           // bytes that need no memory
	target  memory        // where the next bytes go

	sendMR  *uverbs.MR // a ring
	sendPos int        // where the next bytes go
	free    int        // bytes of the ring

	// Each message needs a receive of the peer, and one without a receive ends the connection of a server in C. A client
	// knows that receives were posted again when the server has replied to a command after them, or has registered a
	// buffer since it has read all of the last one. A server cannot ask, and waits until the client has receives.
	sent       uint64 // messages
	confirmed  uint64 // of sent: the peer has posted their receives again
	asked      bool   // the server was asked, and has not replied
	sentBefore uint64 // messages before it was asked
	dataSent   uint64 // messages up to the last one with data that the device was told of

	// Commands that are sent when there is room for them.
	owedBuffer  bool
	owedReplies int
}

const (
	sends        = 256
	minInline    = 64
	sendBuffer   = 256 << 10
	lowWater     = 2048 // bytes of the send buffer that are worth a message
	firstMessage = 4096
	maxMessage   = 64 << 10

	// controlRoom is how many requests data leaves room for: the device sends commands while data waits.
	controlRoom = 8
	// askAfter is how many messages a client sends before it asks whether the server has receives again.
	askAfter = 256
)

// allocSends registers the send buffer.
func (c *Conn) allocSends() (err error) {
	c.free = sendBuffer
	c.sendMR, err = c.cm.PD().Alloc(sendBuffer, uverbs.LocalWrite)
	return err
}

// confirm notes that the peer has posted the receives of the first n messages again.
func (c *Conn) confirm(n uint64) { c.confirmed = max(c.confirmed, n) }

// room returns how many messages may be sent now.
func (c *Conn) room() int {
	n := sends - int(c.tail-c.done)
	if !c.server {
		n = min(n, peerReceives-int(c.sent-c.confirmed))
	}
	return n
}

// controllable reports whether a command can be sent.
func (c *Conn) controllable() bool { return c.room() > 0 }

// sendable reports whether a message of n bytes, or of a part of them, can be sent.
func (c *Conn) sendable(n int) bool {
	return c.target.length > 0 && c.room() > controlRoom && (n <= c.inline || c.free >= min(n, lowWater))
}

// number returns the number of the next request, which uses bytes of the send buffer, and its flags. Most requests
// have no completion, which would wake a call that waits for data. But some of those that fill the queue or the
// buffer must have one.
func (c *Conn) number(bytes int, signal bool) (uint64, uverbs.SendFlags) {
	id := c.tail
	c.posted[id%sends] = uint32(bytes)
	c.tail++
	c.sent++
	c.free -= bytes
	c.quiet++
	c.quietly += bytes
	if signal || c.quiet >= sends/8 || c.quietly >= sendBuffer/4 {
		c.quiet, c.quietly = 0, 0
		return id, uverbs.Signaled
	}
	return id, 0
}

// complete notes that the requests up to a number have completed.
func (c *Conn) complete(number uint64) {
	for number-c.done < c.tail-c.done { // it is one of those that are outstanding
		c.free += int(c.posted[c.done%sends])
		c.done++
	}
}

// Write copies b to the send buffer, in parts if it is longer, and returns when the device has been told of all of it.
// Close waits until the peer has received it. The errors are those of [Conn.Read], but it matches
// [syscall.ECONNRESET] if the peer has ended the connection.
func (c *Conn) Write(b []byte) (int, error) {
	c.writer.lock.Lock()
	defer c.writer.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	n, err := c.write(b)
	return n, c.opError("write", err)
}

// write writes b. The caller holds the lock of c.writer, and c.mu.
func (c *Conn) write(b []byte) (n int, err error) {
	if len(b) == 0 {
		return 0, c.waitToWrite(needNothing, 0)
	}
	for most := firstMessage; n < len(b); most = min(4*most, maxMessage) {
		// The first messages are short, so that the device starts early.
		part := b[n:min(n+most, len(b))]
		if err := c.waitToWrite(needSend, len(part)); err != nil {
			return n, err
		}
		part = part[:min(len(part), int(c.target.length))]
		if len(part) > c.inline {
			part = part[:min(len(part), c.free)]
		}
		if c.send(part) {
			n += len(part)
		}
		if c.err != nil {
			return n, c.err
		}
	}
	return n, nil
}

// waitToWrite waits for what Write needs. It returns an error if nothing can be sent any more.
func (c *Conn) waitToWrite(need need, amount int) error {
	if err := c.wait(context.Background(), &c.writer, need, uint64(amount)); err != nil {
		return err
	}
	return c.err
}

// send writes data to the peer's buffer, and reports whether the device was told.
func (c *Conn) send(data []byte) bool {
	ring := len(data)
	if ring <= c.inline {
		ring = 0
	}
	id, flags := c.number(ring, false)
	b := c.qp.StartSend()
	b.WriteImm(id, flags, c.target.addr, c.target.key, uint32(len(data)))
	if ring == 0 {
		b.Inline(data)
	} else {
		first := copy(c.sendMR.Bytes()[c.sendPos:], data)
		b.SGE(c.sendMR.SGE(c.sendPos, first))
		if rest := copy(c.sendMR.Bytes(), data[first:]); rest > 0 {
			b.SGE(c.sendMR.SGE(0, rest))
		}
		c.sendPos = (c.sendPos + ring) % sendBuffer
	}
	c.target.addr += uint64(len(data))
	c.target.length -= uint32(len(data))
	if !c.submit(&b) {
		return false
	}
	c.dataSent = c.sent
	c.ask()
	return true
}

// sendCommand sends a command. There is room for it.
func (c *Conn) sendCommand(cmd command, signal bool) {
	id, flags := c.number(0, signal)
	data := cmd.bytes()
	b := c.qp.StartSend()
	b.SendInline(id, flags, data[:])
	c.submit(&b)
}

// submit submits b, and reports whether that has succeeded.
func (c *Conn) submit(b *uverbs.SendBatch) bool {
	err := b.Submit()
	if err != nil {
		c.fail(err)
	}
	return err == nil
}

// ask asks the server whether it has posted receives again, if there is a reason. It has no effect on the server.
func (c *Conn) ask() {
	if c.server || c.asked || c.err != nil || c.sent-c.confirmed < askAfter || !c.controllable() {
		return
	}
	c.asked, c.sentBefore = true, c.sent
	c.sendCommand(command{op: opGetFeature}, false)
}

// sendOwed sends the commands for which there was no room before.
func (c *Conn) sendOwed() {
	for c.err == nil && c.controllable() {
		switch {
		case c.owedBuffer:
			c.owedBuffer = false
			c.sendCommand(command{op: opRegister, memory: memory{addr: c.recvMR.Addr(), length: uint32(len(c.recvBuffer)),
				key: c.recvMR.RKey()}}, false)
		case c.owedReplies > 0:
			c.owedReplies--
			c.sendCommand(command{op: opGetFeature}, false)
		default:
			c.ask()
			return
		}
	}
}
