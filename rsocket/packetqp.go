package rsocket

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A packetQP is the UD QP of a local address.
type packetQP struct {
	id     *cm.SyncID
	qp     *uverbs.QP
	sendCQ *uverbs.CQ
	recvCQ *uverbs.CQ
	local  netip.AddrPort
	header []byte // of its datagrams
	mtu    int    // of a datagram with its header
	lmc    uint8

	linkLayer uverbs.LinkLayer

	recvs   *uverbs.MR // in slots
	recvLen int        // of a slot: a GRH and the longest datagram that the port can receive

	sends  *uverbs.MR // in slots of datagramLen
	inline int
	kick   chan struct{} // see PacketConn.watch

	// These fields belong to PacketConn.writer.
	free   []int    // slots of sends
	routes []*route // of the datagrams in the slots
	wcs    [16]uverbs.WC
}

// newPacketQP creates the QP of a local address.
func newPacketQP(config *Config, local netip.AddrPort) (*packetQP, error) {
	id, err := cm.NewID(cm.PSUDP)
	if err != nil {
		return nil, err
	}
	q := &packetQP{id: id, local: local, header: appendDatagramHeader(nil, local), kick: make(chan struct{}, 1)}
	if err := q.setUp(config); err != nil {
		return nil, errors.Join(err, q.close())
	}
	return q, nil
}

func (q *packetQP) setUp(config *Config) error {
	if err := q.id.SetTOS(config.TOS); err != nil {
		return err
	}
	if err := q.id.Bind(q.local); err != nil {
		return err
	}
	if q.id.Verbs() == nil { // such as a loopback address
		return fmt.Errorf("%w: %v does not belong to one: use the address of a device's network interface",
			uverbs.ErrNoDevice, q.local.Addr())
	}
	if q.id.Verbs().Device().NodeType == uverbs.NodeRNIC {
		return errNoDatagrams
	}
	port, err := q.id.Verbs().QueryPort(q.id.Port())
	if err != nil {
		return err
	}
	q.mtu, q.lmc, q.linkLayer = min(datagramLen, port.ActiveMTU.Bytes()), port.LMC, port.LinkLayer
	// A datagram that is longer than its receive may fail the QP, so that any peer could.
	q.recvLen = uverbs.GRHLen + max(datagramLen, port.MaxMTU.Bytes())
	receives := min(config.RecvQueue, max(config.RecvBuffer/datagramLen, 1))
	sends := min(config.SendQueue, max(config.SendBuffer/datagramLen, 1))
	err = q.id.CreateQP(config.PD, uverbs.QPConfig{MaxSendWR: sends, MaxRecvWR: receives, MaxInline: config.Inline})
	if err != nil {
		return err
	}
	q.qp, q.sendCQ, q.recvCQ = q.id.QP(), q.id.SendCQ(), q.id.RecvCQ()
	q.sendCQ.SetPolling(config.Polling)
	q.recvCQ.SetPolling(config.Polling)
	q.inline = min(q.qp.Cap().MaxInline, datagramLen)
	return q.allocate(sends, receives)
}

// allocate registers memory and posts the receives.
func (q *packetQP) allocate(sends, receives int) (err error) {
	if q.sends, err = q.qp.PD().Alloc(sends*datagramLen, uverbs.LocalWrite); err != nil {
		return err
	}
	if q.recvs, err = q.qp.PD().Alloc(receives*q.recvLen, uverbs.LocalWrite); err != nil {
		return err
	}
	q.routes = make([]*route, sends)
	for i := range sends {
		q.free = append(q.free, i)
	}
	for i := range receives {
		if err := q.postReceive(uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

func (q *packetQP) postReceive(slot uint64) error {
	_, err := q.qp.PostRecv(uverbs.RecvWR{WRID: slot,
		SGL: []uverbs.SGE{q.recvs.SGE(int(slot)*q.recvLen, q.recvLen)}})
	return err
}

// received returns the datagram in a slot, and reports whether it follows the protocol. The payload is valid until the
// slot is posted again.
func (q *packetQP) received(wc *uverbs.WC) (from netip.AddrPort, payload []byte, ok bool) {
	if wc.ByteLen < uverbs.GRHLen || int(wc.ByteLen) > q.recvLen {
		return netip.AddrPort{}, nil, false
	}
	b := q.recvs.Bytes()[int(wc.WRID)*q.recvLen:][uverbs.GRHLen:wc.ByteLen]
	from, payload, ok = parseDatagram(b, q.local.Addr().Is4())
	if ok && from.Addr().IsLinkLocalUnicast() && from.Addr().Is6() {
		from = netip.AddrPortFrom(from.Addr().WithZone(q.local.Addr().Zone()), from.Port())
	}
	return from, payload, ok
}

// post sends the datagram of n bytes in a slot.
func (q *packetQP) post(slot, n int, r *route) error {
	if n <= q.inline {
		_, err := q.qp.PostSend(uverbs.SendWR{WRID: uint64(slot), Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
			Inline: q.sends.Bytes()[slot*datagramLen:][:n], AH: r.ah, QPN: r.qpn, QKey: cm.UDQKey})
		return err
	}
	_, err := q.qp.PostSend(uverbs.SendWR{WRID: uint64(slot), Opcode: uverbs.OpSend, Flags: uverbs.Signaled,
		SGL: []uverbs.SGE{q.sends.SGE(slot*datagramLen, n)}, AH: r.ah, QPN: r.qpn, QKey: cm.UDQKey})
	return err
}

// close closes the QP and what it uses.
func (q *packetQP) close() error {
	errs := []error{q.id.Close()}
	for _, mr := range []*uverbs.MR{q.sends, q.recvs} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(errs...)
}

// errNoDatagrams is the error of a PacketConn on iWARP.
var errNoDatagrams = fmt.Errorf("%w: iWARP has no datagrams: use Dial and Listen", uverbs.ErrNotSupported)
