package rsocket

import (
	"encoding/binary"
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
	if c.isIWARP() {
		if err := c.allocMessages(receives); err != nil {
			return err
		}
	}
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
	imm, ok := c.message(wc)
	op, data := parseImmediate(imm)
	switch {
	case c.broken:
		return
	case !ok:
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
		c.limitTo(data, c.written(wc, 0))
	case opMapping:
		c.received++
		c.receiveMapping(data, c.written(wc, mappingLen))
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
	if _, err := c.qp.PostRecv(c.receives(n)...); err != nil {
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

// messageLen is the length of a message on iWARP, which has no immediate data. There, as in librdmacm, what is the
// immediate data of a WRITE elsewhere follows the WRITE as a SEND, in the byte order of the sender. A message that
// finds no receive ends the connection: iWARP does not send again.
const messageLen = 4

// iwarp is what a connection of an iWARP device has in addition.
type iwarp struct {
	mr     *uverbs.MR // of a message for each receive
	slots  uint64
	posted uint64 // receives so far
	taken  uint64 // messages so far
	recvs  [len(emptyReceives)]uverbs.RecvWR
	sgl    [len(emptyReceives)]uverbs.SGE
	out    [messageLen]byte
}

// allocMessages registers memory for the messages of the peer.
func (c *Conn) allocMessages(receives int) (err error) {
	w := &iwarp{slots: uint64(receives)}
	if w.mr, err = c.pd.RegMR(make([]byte, messageLen*receives), uverbs.LocalWrite); err == nil {
		c.iwarp = w
	}
	return err
}

// closeMessages deregisters it.
func (c *Conn) closeMessages() error {
	if c.iwarp == nil {
		return nil
	}
	return c.iwarp.mr.Close()
}

// next returns the next n receives.
func (w *iwarp) next(n int) []uverbs.RecvWR {
	for i := range n {
		slot := w.posted % w.slots
		w.posted++
		w.sgl[i] = w.mr.SGE(int(slot)*messageLen, messageLen)
		w.recvs[i] = uverbs.RecvWR{WRID: receiveID, SGL: w.sgl[i : i+1]}
	}
	return w.recvs[:n]
}

// take returns the message of the next completion.
func (w *iwarp) take() uint32 {
	slot := int(w.taken%w.slots) * messageLen
	w.taken++
	return binary.NativeEndian.Uint32(w.mr.Bytes()[slot:])
}

// receives returns n receives to post.
func (c *Conn) receives(n int) []uverbs.RecvWR {
	if c.iwarp != nil {
		return c.iwarp.next(n)
	}
	return emptyReceives[:n]
}

// message returns the immediate data of a completion, and whether it has any.
func (c *Conn) message(wc *uverbs.WC) (imm uint32, ok bool) {
	if c.iwarp == nil {
		return wc.Imm, wc.Opcode == uverbs.WCRecvRDMAImm
	}
	imm = c.iwarp.take()
	return imm, wc.Opcode == uverbs.WCRecv && wc.ByteLen == messageLen
}

// written returns how many bytes the peer has written before the message, or on iWARP, where that is not known, n.
func (c *Conn) written(wc *uverbs.WC, n int) int {
	if c.iwarp != nil {
		return n
	}
	return int(wc.ByteLen)
}
