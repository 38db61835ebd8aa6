package rsocket

import (
	"encoding/binary"
	"math/bits"

	"github.com/goverbs/goverbs/uverbs"
)

// sender is a connection's part for requests of this side.
type sender struct {
	sends    int    // requests that the queue has room for
	tail     uint64 // number of the next request, its WRID
	done     uint64 // requests before it have completed with success
	dataTail uint64 // number after the last request with data
	posted   []post // by number, modulo the length
	quiet    int    // requests since the last one that has a completion
	quietly  int    // bytes of the send buffer that they use

	controls int    // outstanding control messages
	payloads int    // number of the next memory for the payload of one
	inline   int    // bytes that need no memory
	sent     uint16 // messages of data
	limit    uint16 // of sent
	reserve  uint16 // messages below it that are not sent: rsockets in C have no receives for control messages
	target   sge    // where the next bytes go
	next     sge    // the target after it, if its length is not 0

	sendMR     *uverbs.MR
	sendBuffer []byte // a ring
	sendPos    int    // where the next bytes go
	free       int    // bytes of sendBuffer
}

// A post is a request that has not completed: how many bytes of the send buffer it uses, or controlPost.
type post int32

const controlPost post = -1

const (
	maxControls   = 4    // control messages that may be outstanding; data leaves room for them
	lowWater      = 2048 // bytes of the send buffer that are worth a message
	firstTransfer = 2048
	maxTransfer   = 1 << 16
	controlLen    = 32 // bytes of the largest payload of a control message
)

// initSends prepares for a queue of n requests.
func (c *Conn) initSends(n int) {
	c.sends = n
	c.posted = make([]post, 1<<bits.Len(uint(n-1)))
	c.free = c.config.SendBuffer
}

// allocSends registers the send buffer. The payloads of control messages follow it if they are not inline.
func (c *Conn) allocSends() (err error) {
	n := c.config.SendBuffer
	if c.config.Inline < controlLen {
		n += maxControls * controlLen
	}
	b := make([]byte, n)
	c.sendBuffer = b[:c.config.SendBuffer]
	c.sendMR, err = c.pd.RegMR(b, uverbs.LocalWrite)
	return err
}

// sendable reports whether a message of n bytes, or of a part of them, can be sent.
func (c *Conn) sendable(n int) bool {
	return c.credited() && c.target.length > 0 && c.writable(n)
}

// credited reports whether the peer has a receive for one more message with data.
func (c *Conn) credited() bool { return c.limit-c.sent > c.reserve }

// writable reports whether there is room for a request with n bytes, or a part of them.
func (c *Conn) writable(n int) bool {
	return c.room() > 0 && (n <= c.inline || c.free >= min(n, lowWater))
}

// room returns how many messages with data the queue has room for.
func (c *Conn) room() int { return c.sends - maxControls - (int(c.tail-c.done) - c.controls) }

// transfer returns how many of n bytes the next message can have.
func (c *Conn) transfer(n int) int {
	n = min(n, int(min(c.target.length, maxData)))
	if n > c.inline {
		n = min(n, c.free)
	}
	return n
}

// number returns the number of the next request, which uses bytes of the send buffer, and its flags. Most requests
// have no completion, which would wake a call that waits for data. But some of those that fill the queue or the
// buffer must have one.
func (c *Conn) number(bytes int, control, signal bool) (uint64, uverbs.SendFlags) {
	c.posted[c.tail&uint64(len(c.posted)-1)] = post(bytes)
	c.tail++
	c.free -= bytes
	c.quiet++
	c.quietly += bytes
	if control {
		c.posted[(c.tail-1)&uint64(len(c.posted)-1)] = controlPost
		c.controls++
	} else {
		c.dataTail = c.tail
	}
	if signal || control && c.controls > 1 || 8*c.quiet >= c.sends || 4*c.quietly >= len(c.sendBuffer) {
		c.quiet, c.quietly = 0, 0
		return c.tail - 1, uverbs.Signaled
	}
	return c.tail - 1, 0
}

// complete notes that the requests up to a number have completed.
func (c *Conn) complete(number uint64) {
	for number-c.done < c.tail-c.done { // it is one of those that are outstanding
		if p := c.posted[c.done&uint64(len(c.posted)-1)]; p == controlPost {
			c.controls--
		} else {
			c.free += int(p)
		}
		c.done++
	}
}

// sendInline sends data of at most c.inline bytes.
func (c *Conn) sendInline(data []byte) {
	id, flags := c.number(0, false, false)
	to, imm := c.aim(len(data))
	b := c.qp.StartSend()
	c.startMessage(&b, id, flags, to, imm)
	b.Inline(data)
	c.submitMessage(&b, id, flags, imm)
}

// sendRing sends the next n bytes of the send buffer.
func (c *Conn) sendRing(n int) {
	id, flags := c.number(n, false, false)
	to, imm := c.aim(n)
	b := c.qp.StartSend()
	c.startMessage(&b, id, flags, to, imm)
	c.addRing(&b, n)
	c.submitMessage(&b, id, flags, imm)
}

// addRing adds the next n bytes of the send buffer to a request.
func (c *Conn) addRing(b *uverbs.SendBatch, n int) {
	first := min(n, len(c.sendBuffer)-c.sendPos)
	b.SGE(c.sendMR.SGE(c.sendPos, first))
	if n > first {
		b.SGE(c.sendMR.SGE(0, n-first))
	}
	c.sendPos = (c.sendPos + n) % len(c.sendBuffer)
}

// aim returns where the next n bytes go, and the immediate data of their message.
func (c *Conn) aim(n int) (sge, uint32) {
	to := c.target
	c.target.addr += uint64(n)
	c.target.length -= uint32(n)
	if c.target.length == 0 {
		c.target, c.next = c.next, sge{}
	}
	c.sent++
	return to, immediate(opData, n)
}

// sendControl sends a control message. There is room for it.
func (c *Conn) sendControl(imm uint32, to sge, payload []byte, signal bool) {
	id, flags := c.number(0, true, signal)
	b := c.qp.StartSend()
	c.startMessage(&b, id, flags, to, imm)
	switch {
	case len(payload) == 0:
	case len(payload) <= c.inline:
		b.Inline(payload)
	default:
		pos := len(c.sendBuffer) + c.payloads*controlLen
		c.payloads = (c.payloads + 1) % maxControls
		copy(c.sendMR.Bytes()[pos:], payload)
		b.SGE(c.sendMR.SGE(pos, len(payload)))
	}
	c.submitMessage(&b, id, flags, imm)
}

func (c *Conn) submit(b *uverbs.SendBatch) {
	if err := b.Submit(); err != nil {
		c.fail(err)
	}
}

// grant tells the peer how many messages it may send, and where, once there is enough to tell.
func (c *Conn) grant() {
	space := c.freed >= len(c.recvBuffer)/2
	if !space && int16(c.received-c.told) < 0 || c.controls == maxControls || c.err != nil || c.finished || c.peerClosed {
		return
	}
	c.told = c.received + uint16(c.credits/2)
	imm := immediate(opSGL, int(c.received)+c.credits)
	if !space {
		c.sendControl(imm, sge{}, nil, false)
		return
	}
	var payload [sgeLen]byte
	c.half(c.nextHalf).put(payload[:], c.peer.order)
	to := c.peer.list
	to.addr += uint64(c.nextEntry) * sgeLen
	c.sendControl(imm, to, payload[:], false)
	c.freed -= len(c.recvBuffer) / 2
	c.granted += len(c.recvBuffer) / 2
	c.nextHalf ^= 1
	c.nextEntry = (c.nextEntry + 1) % int(c.peer.list.length)
}

// limitTo takes a message of op opSGL.
func (c *Conn) limitTo(limit int, payload int) {
	c.limit = uint16(limit)
	memory := c.listMemory()[c.entry*sgeLen:][:sgeLen]
	entry := parseSGE(memory, binary.NativeEndian)
	if c.iwarp != nil && c.next.length == 0 && entry.length > 0 {
		clear(memory) // the next message may come without an entry
		payload = sgeLen
	}
	if payload == 0 {
		return
	}
	c.entry = (c.entry + 1) % listEntries
	switch {
	case payload != sgeLen || entry.length == 0 || c.next.length > 0:
		c.fail(errBadBuffer)
	case c.target.length == 0:
		c.target = entry
	default:
		c.next = entry
	}
}

// startMessage begins a request that writes to the peer's memory and brings a message.
func (c *Conn) startMessage(b *uverbs.SendBatch, id uint64, flags uverbs.SendFlags, to sge, imm uint32) {
	if c.iwarp == nil {
		b.WriteImm(id, flags, to.addr, to.key, imm)
	} else {
		b.Write(id, 0, to.addr, to.key)
	}
}

// submitMessage posts a request of startMessage.
func (c *Conn) submitMessage(b *uverbs.SendBatch, id uint64, flags uverbs.SendFlags, imm uint32) {
	if w := c.iwarp; w != nil {
		binary.NativeEndian.PutUint32(w.out[:], imm)
		b.SendInline(id, flags, w.out[:])
	}
	c.submit(b)
}
