package kv

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	// window is how many records of a link may be without acknowledgment, and how many buffers for
	// records each side has.
	window     = 8
	recordSize = 16 + ValueSize // sequence number, key, value
	ackSize    = 8              // the number of records that the backup has
)

// ErrProtocol is matched by the errors of links whose peer does not follow the protocol.
var ErrProtocol = errors.New("kv: the peer does not follow the protocol")

// A Link is a connection of two nodes. Links are closed by Close, by their node, or when they fail.
type Link struct {
	node   *Node
	number int
	qp     *uverbs.QP
	mr     *uverbs.MR // window buffers to send, then 2*window to receive
	peer   string
	err    error

	// Of the primary: how many records of the log were sent and completed, and how many the peer
	// has. The buffer of a record must not be changed before its send has completed. Of a backup:
	// how many acknowledgments were sent and completed, and of how many records.
	sent, done, acked int
	primary           bool
}

// A Hello is what the other node must know to connect a link. Both nodes exchange theirs, for example
// as JSON over TCP.
type Hello struct {
	Name     string
	Endpoint uverbs.Endpoint
	Records  int // that the node has
}

// NewLink creates a link, which its Connect connects.
func (n *Node) NewLink() (_ *Link, err error) {
	if len(n.links) == maxLinks {
		return nil, fmt.Errorf("kv: %s has %d links: close some", n.name, maxLinks)
	}
	l := &Link{node: n}
	if l.mr, err = n.pd.Alloc(3*window*recordSize, uverbs.LocalWrite); err != nil {
		return nil, err
	}
	l.qp, err = n.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: n.cq, RecvCQ: n.cq, MaxSendWR: 2 * window,
		MaxRecvWR: 2 * window, MaxInline: ackSize})
	if err != nil {
		return nil, errors.Join(err, l.mr.Close())
	}
	l.number = int(l.qp.QPN())
	n.links[l.qp.QPN()] = l
	return l, nil
}

// Hello returns what the peer must know.
func (l *Link) Hello() (Hello, error) {
	e, err := l.qp.Endpoint()
	return Hello{l.node.name, e, len(l.node.log)}, err
}

// Connect connects the link. The primary sends the records that the backup does not have.
func (l *Link) Connect(peer Hello, primary bool) error {
	l.peer, l.primary = peer.Name, primary
	if primary && peer.Records > len(l.node.log) {
		return fmt.Errorf("%w: %s has %d records, the primary has %d", ErrProtocol, peer.Name, peer.Records, len(l.node.log))
	}
	if err := l.qp.Init(); err != nil {
		return err
	}
	for i := range 2 * window { // before the peer can send
		if err := l.receive(uint64(i)); err != nil {
			return err
		}
	}
	if err := l.qp.Connect(peer.Endpoint); err != nil {
		return err
	}
	if l.acked = len(l.node.log); primary {
		l.sent, l.done, l.acked = peer.Records, peer.Records, peer.Records
		l.node.acked[peer.Name] = peer.Records
		l.sendRecords()
	}
	return nil
}

// Err returns why the link is closed, or nil.
func (l *Link) Err() error { return l.err }

// Close closes the link.
func (l *Link) Close() error {
	delete(l.node.links, uint32(l.number))
	return errors.Join(l.qp.Close(), l.mr.Close())
}

func (l *Link) fail(err error) { l.err = errors.Join(err, l.Close()) }

// receive posts receive buffer i.
func (l *Link) receive(i uint64) error {
	_, err := l.qp.PostRecv(uverbs.RecvWR{WRID: i, SGL: []uverbs.SGE{l.mr.SGE((window+int(i))*recordSize, recordSize)}})
	return err
}

// sendRecords sends the records for which there are buffers at both ends.
func (l *Link) sendRecords() {
	n := l.node
	for l.primary && l.err == nil && l.sent < len(n.log) && l.sent-l.done < n.slots && l.sent-l.acked < 2*window {
		at := l.sent % window * recordSize
		b := l.mr.Bytes()[at:][:recordSize]
		r := &n.log[l.sent]
		binary.LittleEndian.PutUint64(b, uint64(l.sent))
		binary.LittleEndian.PutUint64(b[8:], r.Key)
		copy(b[16:], r.Value[:])
		_, err := l.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			SGL: []uverbs.SGE{l.mr.SGE(at, recordSize)}})
		if err != nil {
			l.fail(err)
			return
		}
		l.sent++
	}
}

// process processes a completion.
func (l *Link) process(wc *uverbs.WC) error {
	if err := wc.Err(); err != nil {
		return err
	}
	if wc.Opcode != uverbs.WCRecv {
		l.done++
		if l.primary {
			l.sendRecords()
			return nil
		}
		return l.acknowledge()
	}
	b := l.mr.Bytes()[(window+int(wc.WRID))*recordSize:][:wc.ByteLen]
	var err error
	if l.primary {
		err = l.acknowledged(b)
	} else {
		err = l.record(b)
	}
	if err == nil {
		err = l.receive(wc.WRID)
	}
	if err == nil && !l.primary {
		err = l.acknowledge()
	}
	return err
}

// record processes a record of the primary.
func (l *Link) record(b []byte) error {
	n := l.node
	if len(b) != recordSize {
		return fmt.Errorf("%w: a record of %d bytes", ErrProtocol, len(b))
	}
	if at := binary.LittleEndian.Uint64(b); at != uint64(len(n.log)) {
		return fmt.Errorf("%w: record %d arrives where %d is next", ErrProtocol, at, len(n.log))
	}
	r := Record{Key: binary.LittleEndian.Uint64(b[8:])}
	copy(r.Value[:], b[16:])
	n.log = append(n.log, r)
	return nil
}

// acknowledge tells the primary how many records this backup has. One acknowledgment may stand for
// several records.
func (l *Link) acknowledge() error {
	n := l.node
	if l.acked == len(n.log) || l.sent-l.done == window {
		return nil
	}
	ack := binary.LittleEndian.AppendUint64(nil, uint64(len(n.log)))
	_, err := l.qp.PostSend(uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, Inline: ack})
	l.sent, l.acked = l.sent+1, len(n.log)
	return err
}

// acknowledged processes an acknowledgment of the backup.
func (l *Link) acknowledged(b []byte) error {
	if len(b) != ackSize {
		return fmt.Errorf("%w: an acknowledgment of %d bytes", ErrProtocol, len(b))
	}
	have := binary.LittleEndian.Uint64(b)
	if have <= uint64(l.acked) || have > uint64(l.sent) {
		return fmt.Errorf("%w: %d records are acknowledged after %d of %d", ErrProtocol, have, l.acked, l.sent)
	}
	l.acked = int(have)
	l.node.acked[l.peer] = l.acked
	l.sendRecords()
	return nil
}
