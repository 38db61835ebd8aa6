package udtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A Node is an id with its buffers and the address to which it sends.
type Node struct {
	ID        *cm.ID
	Connected bool // it has the peer's address, or has accepted the peer's request

	test *Test
	mr   *uverbs.MR // two buffers: see slot
	ah   *uverbs.AH
	qpn  uint32
	qkey uint32
}

// Add adds a node for id to the test, which takes ownership of id.
func (t *Test) Add(id *cm.ID) *Node {
	n := &Node{ID: id, test: t}
	id.Context = n
	t.Nodes = append(t.Nodes, n)
	return n
}

// Create adds a node with a new id.
func (t *Test) Create() (*Node, error) {
	id, err := t.Channel.CreateID(t.PortSpace)
	if err != nil {
		return nil, err
	}
	return t.Add(id), nil
}

// Prepare creates the QP and the buffers. The id must be bound to a device.
func (n *Node) Prepare() (err error) {
	if err := n.checkSize(); err != nil {
		return err
	}
	depth := max(n.test.Count, 1)
	if err := n.ID.CreateQP(nil, uverbs.QPConfig{Type: uverbs.UD, MaxSendWR: depth, MaxRecvWR: depth}); err != nil {
		return err
	}
	if n.test.Count == 0 {
		return nil
	}
	n.mr, err = n.ID.AllocMsgs(2 * n.slotSize())
	return err
}

// checkSize returns an error if a datagram does not fit into one packet.
func (n *Node) checkSize() error {
	t := n.test
	port, err := n.ID.Verbs().QueryPort(n.ID.Port())
	if err != nil {
		return err
	}
	if mtu := port.ActiveMTU.Bytes(); t.Count > 0 && t.Size > mtu {
		t.Printf("%s: message_size %d is larger than active mtu %d", t.name, t.Size, mtu)
		return failure{fmt.Errorf("a datagram of %d bytes is too long: use -S %d or less, or raise the MTU of the "+
			"network interface",
			t.Size, mtu), -int(unix.EINVAL)}
	}
	return nil
}

func (n *Node) slotSize() int { return uverbs.GRHLen + n.test.Size }

// slot returns the buffer of a receive. The first datagram has its own buffer,
// because its GRH has the address for replies. The others are not read and share
// a buffer.
func (n *Node) slot(receive int) uverbs.SGE {
	return n.mr.SGE(min(receive, 1)*n.slotSize(), n.slotSize())
}

// PostRecvs posts a receive for each datagram.
func (n *Node) PostRecvs() error {
	for i := range n.test.Count {
		if err := n.ID.PostRecv(uint64(i), n.slot(i)); err != nil {
			return fmt.Errorf("posting receive %d: %w", i, err)
		}
	}
	return nil
}

// SendTo sets the node's destination to the peer or group of an event.
func (n *Node) SendTo(p cm.UDParam) (err error) {
	n.qpn, n.qkey = p.QPN, p.QKey
	if n.ah, err = n.ID.PD().CreateAH(p.AH); err != nil {
		return err
	}
	n.Connected = true
	return nil
}

// ReplyTo sets the node's destination to the sender of its first datagram, whose
// immediate data is the sender's QP number. The Q_Key is the same in both
// directions.
func (n *Node) ReplyTo(wc *uverbs.WC) (err error) {
	if wc.Flags&uverbs.WCWithImm == 0 {
		return errors.New("the datagram has no immediate data: is the peer a udaddy?")
	}
	n.qpn = wc.Imm
	attr, err := n.ID.QP().Query(uverbs.MaskQKey)
	if err != nil {
		return err
	}
	n.qkey = attr.QKey
	n.ah, err = n.ID.PD().CreateAHFromWC(n.ID.Port(), wc, n.mr.Bytes()[:uverbs.GRHLen])
	return err
}

// Send posts all datagrams and waits for the completion of the last one.
func (n *Node) Send(ctx context.Context) error {
	if n.test.Count == 0 {
		return nil
	}
	wr := uverbs.SendWR{Opcode: uverbs.OpSendImm, Imm: n.ID.QP().QPN(), AH: n.ah, QPN: n.qpn, QKey: n.qkey,
		SGL: []uverbs.SGE{n.mr.SGE(0, n.test.Size)}}
	for i := range n.test.Count {
		if i == n.test.Count-1 {
			wr.Flags = uverbs.Signaled
		}
		if _, err := n.ID.QP().PostSend(wr); err != nil {
			return fmt.Errorf("posting send %d: %w", i, err)
		}
	}
	_, err := n.ID.SendComp(ctx)
	return err
}

// close closes the node's objects, first the QP, which uses the others.
func (n *Node) close() error {
	errs := []error{n.ID.DestroyQP()}
	if n.ah != nil {
		errs = append(errs, n.ah.Close())
	}
	if n.mr != nil {
		errs = append(errs, n.mr.Close())
	}
	return errors.Join(append(errs, n.ID.Close())...)
}
