package rsocket

import (
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

// receiver is a connection's part for messages of the peer.
type receiver struct {
	credits    int // messages of the peer that there are receives for
	recvMR     *uverbs.MR
	recvBuffer []byte // a ring of two halves; the list and the table of mappings follow
	recvPos    int    // of the next byte to read
	available  int    // bytes to read
	granted    int    // bytes that the peer may send
	freed      int    // bytes that it is to be granted
	nextHalf   int    // of recvBuffer, which it is granted next
	nextEntry  int    // of its list, which tells it

	list     sge    // of this side
	entry    int    // of it, which the peer writes next
	received uint16 // messages of the peer that count
	told     uint16 // the number of received at which the peer is told
}

// receiveID is the WRID of receives.
const receiveID = 1 << 63

// controlReceives is how many control messages may wait for a call to handle them. They cost no credits. If one finds
// no receive, the connection pauses for 0.65 seconds, since that is the time that the connection manager sets.
const controlReceives = 8

// emptyReceives are receives without memory: immediate data is all that arrives in them.
var emptyReceives = func() (wrs [16]uverbs.RecvWR) {
	for i := range wrs {
		wrs[i].WRID = receiveID
	}
	return
}()

var (
	errBadBuffer = fmt.Errorf("%w: it announces a buffer that cannot be", ErrProtocol)
	errTooMuch   = fmt.Errorf("%w: it sends more than there is room for", ErrProtocol)
	errUnknown   = fmt.Errorf("%w: it sends a message of unknown meaning", ErrProtocol)
	errAfterEnd  = fmt.Errorf("%w: it sends data after it has said that it sends no more", ErrProtocol)
)

// allocReceives registers the memory that the peer writes to.
func (c *Conn) allocReceives(receives int) (err error) {
	size, listLen := c.config.RecvBuffer, listEntries*sgeLen+c.config.Mappings*mappingLen
	b := make([]byte, size+listLen)
	if c.recvMR, err = c.pd.RegMR(b, uverbs.LocalWrite|uverbs.RemoteWrite); err != nil {
		return err
	}
	c.recvBuffer = b[:size]
	c.list = sge{addr: c.recvMR.Addr() + uint64(size), key: c.recvMR.RKey(), length: listEntries}
	c.credits = receives - controlReceives
	// The peer learns of the first half when it connects, and of the second at once.
	c.granted, c.freed, c.nextHalf = size/2, size/2, 1
	c.entry = 1
	c.told = uint16(c.credits / 2)
	return nil
}

func (c *Conn) listMemory() []byte { return c.recvMR.Bytes()[len(c.recvBuffer):] }

// half returns half i of the receive buffer.
func (c *Conn) half(i int) sge {
	n := len(c.recvBuffer) / 2
	return sge{addr: c.recvMR.Addr() + uint64(i*n), key: c.recvMR.RKey(), length: uint32(n)}
}

// receive handles a message of the peer.
func (c *Conn) receive(wc *uverbs.WC) {
	op, data := parseImmediate(wc.Imm)
	switch {
	case c.broken:
		return
	case wc.Opcode != uverbs.WCRecvRDMAImm:
		c.fail(errUnknown)
		return
	case c.peerEOF && (op == opData || op == opMapping):
		c.fail(errAfterEnd)
		return
	}
	switch op {
	case opData:
		c.received++
		if data > c.granted {
			c.fail(errTooMuch)
			return
		}
		c.granted -= data
		c.available += data
	case opSGL:
		c.limitTo(data, int(wc.ByteLen))
	case opMapping:
		c.received++
		c.receiveMapping(data, int(wc.ByteLen))
	case opControl:
		c.receiveControl(data)
	default:
		c.fail(errUnknown)
	}
}

func (c *Conn) receiveControl(data int) {
	switch data {
	case controlDisconnect:
		c.peerEOF, c.peerClosed = true, true
		c.stopKeepAlive()
	case controlShutdown:
		c.peerEOF = true
		c.finished = c.finished || c.shutDown // the peer, which does not write, has closed when it receives that
	case controlKeepAlive:
	default:
		c.fail(errUnknown)
	}
}

// repost posts n receives again.
func (c *Conn) repost(n int) {
	if n == 0 || c.err != nil || c.peerClosed {
		return
	}
	if _, err := c.qp.PostRecv(emptyReceives[:n]...); err != nil {
		c.fail(err)
	}
}

// consume notes that the program has read n bytes.
func (c *Conn) consume(n int) {
	c.available -= n
	c.freed += n
	c.recvPos = (c.recvPos + n) % len(c.recvBuffer)
	c.grant()
}
