package valkeyrdma

import (
	"context"
	"fmt"
	"io"

	"github.com/goverbs/goverbs/uverbs"
)

// receiver is a connection's part for messages of the peer.
type receiver struct {
	recvMR     *uverbs.MR
	recvBuffer []byte // the peer writes it from the beginning to the end. Commands follow it in the memory
	filled     int    // bytes that the peer has written
	pos        int    // of the next byte to read

	slots [batch]uint64 // of commands, whose receives are posted next
	sges  [batch]uverbs.SGE
	wrs   [batch]uverbs.RecvWR
}

// receiveID is a bit of the WRIDs of receives. The others are the number of the slot for a command.
const receiveID = 1 << 63

var (
	errLongCommand = fmt.Errorf("%w: it sends a command of more than %d bytes", ErrProtocol, commandLen)
	errTooMuch     = fmt.Errorf("%w: it announces more data than there is room for", ErrProtocol)
	errTwice       = fmt.Errorf("%w: it announces a buffer before the last one is full", ErrProtocol)
	errNotAsked    = fmt.Errorf("%w: it replies to a question that was not asked", ErrProtocol)
	errManyAsked   = fmt.Errorf("%w: it asks without waiting for replies", ErrProtocol)
	errFeatures    = fmt.Errorf("%w: it sets features that were not offered", ErrProtocol)
	errRole        = fmt.Errorf("%w: the server sends a command of clients", ErrProtocol)
)

// allocReceives registers the memory that the peer writes to.
func (c *Conn) allocReceives() (err error) {
	size := c.config.RecvBuffer
	c.recvMR, err = c.cm.PD().Alloc(size+peerReceives*commandLen, uverbs.LocalWrite|uverbs.RemoteWrite)
	if err != nil {
		return err
	}
	c.recvBuffer = c.recvMR.Bytes()[:size:size]
	return nil
}

// slot returns where the memory of a slot is.
func (c *Conn) slot(i uint64) int { return len(c.recvBuffer) + int(i)*commandLen }

// postReceives posts the receives of the first n of c.slots.
func (c *Conn) postReceives(n int) error {
	for i, slot := range c.slots[:n] {
		c.sges[i] = c.recvMR.SGE(c.slot(slot), commandLen)
		c.wrs[i] = uverbs.RecvWR{WRID: slot | receiveID, SGL: c.sges[i : i+1]}
	}
	_, err := c.qp.PostRecv(c.wrs[:n]...)
	return err
}

// receive handles a message of the peer.
func (c *Conn) receive(wc *uverbs.WC) {
	switch {
	case c.err != nil:
	case wc.Opcode == uverbs.WCRecvRDMAImm:
		if uint64(wc.Imm) > uint64(len(c.recvBuffer)-c.filled) {
			c.fail(errTooMuch)
			return
		}
		c.filled += int(wc.Imm)
	default:
		at := c.slot(wc.WRID &^ receiveID)
		cmd, err := parseCommand(c.recvMR.Bytes()[at : at+int(min(wc.ByteLen, commandLen))])
		if err == nil {
			err = c.execute(cmd)
		}
		if err != nil {
			c.fail(err)
		}
	}
}

// execute executes a command of the peer.
func (c *Conn) execute(cmd command) error {
	switch {
	case cmd.op == opKeepAlive:
	case cmd.op == opRegister && c.target.length > 0:
		return errTwice
	case cmd.op == opRegister:
		c.target = cmd.memory
		c.confirm(c.dataSent) // the peer has read all data
	case cmd.op == opGetFeature && c.server:
		if c.owedReplies == peerReceives {
			return errManyAsked
		}
		c.owedReplies++
	case cmd.op == opGetFeature:
		if !c.asked {
			return errNotAsked
		}
		c.asked = false
		c.confirm(c.sentBefore)
	case !c.server:
		return errRole
	case cmd.features != 0:
		return errFeatures
	}
	return nil
}

// Read reads what has arrived, up to the length of b, and waits if nothing has. It returns io.EOF when the peer has
// ended the connection and everything that has arrived was read. That does not prove that everything arrived which the
// peer has written: the protocol has no mark of its end, and only Close of this package waits before it. The replies
// of Valkey show by their format whether they are complete.
//
// The error is a [*net.OpError]. It matches [os.ErrDeadlineExceeded] after the deadline, [net.ErrClosed] after Close,
// [syscall.ECONNRESET] if the connection has ended in another way, and [ErrProtocol] if that is due to what the peer
// has sent.
func (c *Conn) Read(b []byte) (int, error) {
	c.reader.lock.Lock()
	defer c.reader.lock.Unlock()
	c.mu.Lock()
	defer c.unlock()
	if len(b) == 0 && !c.closed { // as in package net, whatever else has happened
		return 0, nil
	}
	if err := c.wait(context.Background(), &c.reader, needData, 0); err != nil {
		return 0, c.opError("read", err)
	}
	if c.filled == c.pos {
		if c.err == errPeerClosed {
			return 0, io.EOF
		}
		return 0, c.opError("read", c.err)
	}
	n := copy(b, c.recvBuffer[c.pos:c.filled])
	c.pos += n
	if c.pos == len(c.recvBuffer) {
		c.pos, c.filled, c.owedBuffer = 0, 0, true
		c.sendOwed()
	}
	return n, nil
}
