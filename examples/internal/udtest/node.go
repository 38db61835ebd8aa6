package udtest

import (
	"context"
	"errors"
	"fmt"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A Node is an id with what it sends from, receives into and sends to.
type Node struct {
	ID        *cm.ID
	Connected bool // it knows where to send, or who will send

	test *Test
	mr   *uverbs.MR // two buffers: see slot
	ah   *uverbs.AH
	qpn  uint32
	qkey uint32
}

// Add makes a node of an id, which belongs to the test from then on.
func (t *Test) Add(id *cm.ID) *Node {
	n := &Node{ID: id, test: t}
	id.Context = n
	t.Nodes = append(t.Nodes, n)
	return n
}

// Create makes a node of a new id.
func (t *Test) Create() (*Node, error) {
	id, err := t.Channel.CreateID(t.PortSpace)
	if err != nil {
		return nil, err
	}
	return t.Add(id), nil
}

// Prepare makes the queue pair and the buffers, once the id is bound to a
// device.
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

// checkSize sees to it that a datagram fits into one packet.
func (n *Node) checkSize() error {
	t := n.test
	port, err := n.ID.Verbs().QueryPort(n.ID.Port())
	if err != nil {
		return err
	}
	if mtu := port.ActiveMTU.Bytes(); t.Count > 0 && t.Size > mtu {
		t.Printf("%s: message_size %d is larger than active mtu %d", t.name, t.Size, mtu)
		return failure{fmt.Errorf("a datagram of %d bytes is too long: give -S %d or less, or raise the MTU of the network interface", t.Size, mtu), -int(unix.EINVAL)}
	}
	return nil
}

func (n *Node) slotSize() int { return uverbs.GRHLen + n.test.Size }

// slot is where a receive goes. The first datagram has a buffer of its own,
// since its header tells where to answer. Nobody looks at the others: they all
// go to one.
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

// SendTo makes the node send to the peer or group that an event has named.
func (n *Node) SendTo(p cm.UDParam) (err error) {
	n.qpn, n.qkey = p.QPN, p.QKey
	if n.ah, err = n.ID.PD().CreateAH(p.AH); err != nil {
		return err
	}
	n.Connected = true
	return nil
}

// AnswerTo makes the node send to where its first datagram came from, which
// says by its immediate data which queue pair to answer. The Q_Key is the same
// both ways.
func (n *Node) AnswerTo(wc *uverbs.WC) (err error) {
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

// Send posts all datagrams, and returns when the last one is on its way.
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

// close lets go of everything, the queue pair first: it uses the rest.
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
