package rsocket

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// ReadFrom is [PacketConn.ReadFromUDPAddrPort]. The address is a *net.UDPAddr.
func (p *PacketConn) ReadFrom(b []byte) (int, net.Addr, error) {
	n, from, err := p.ReadFromUDPAddrPort(b)
	if err != nil {
		return n, nil, err
	}
	return n, net.UDPAddrFromAddrPort(from), nil
}

// Read is [PacketConn.ReadFromUDPAddrPort] without the address.
func (p *PacketConn) Read(b []byte) (int, error) {
	n, _, err := p.ReadFromUDPAddrPort(b)
	return n, err
}

// ReadFromUDPAddrPort waits for a datagram, copies it to b, and returns its length and its sender. What b has no
// room for is lost. The sender chooses the address, as with UDP. ReadFromUDPAddrPort does not allocate.
//
// It returns an error that matches [net.ErrClosed] after Close, [os.ErrDeadlineExceeded] after the deadline, and
// [uverbs.ErrDeviceGone] if the device was removed.
func (p *PacketConn) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	p.reader.lock.Lock()
	defer p.reader.lock.Unlock()
	n, from, err := p.read(b)
	if err != nil {
		return 0, netip.AddrPort{}, p.opError("read", err)
	}
	return n, from, nil
}

// read returns the next datagram. The caller holds p.reader.lock.
func (p *PacketConn) read(b []byte) (int, netip.AddrPort, error) {
	for {
		early, qps, err := p.readable()
		switch {
		case err != nil:
			return 0, netip.AddrPort{}, err
		case early.from.IsValid():
			return copy(b, early.data), early.from, nil
		}
		n, from, found, err := p.receive(b, qps)
		switch {
		case err != nil:
		case from.IsValid():
			return n, from, nil
		case found:
		default:
			err = p.sleepReader(qps)
		}
		if err != nil {
			p.mu.Lock()
			p.fail(err) // unless there is another reason, such as Close
			p.mu.Unlock()
		}
	}
}

// readable returns a datagram that has come by UDP, if there is one, and the QPs, which have their turn in between.
func (p *PacketConn) readable() (early packet, qps []*packetQP, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(&p.reader); err != nil {
		return packet{}, nil, err
	}
	if p.inbox.afterEarly = len(p.early) > 0 && !p.inbox.afterEarly; p.inbox.afterEarly {
		early = p.early[0]
		p.early[0] = packet{}
		p.early = p.early[1:]
	}
	return early, p.qps, nil
}

// receive returns a datagram that one of the QPs has received, or an invalid address if there is none, or those that
// were found are dropped. The caller looks at the state in between, so that no peer keeps it from doing so.
func (p *PacketConn) receive(b []byte, qps []*packetQP) (n int, from netip.AddrPort, found bool, err error) {
	in := &p.inbox
	if in.next == in.count {
		if found, err := p.poll(qps); err != nil || !found {
			return 0, netip.AddrPort{}, false, err
		}
	}
	for in.next < in.count && err == nil && !from.IsValid() {
		n, from, err = p.take(b)
	}
	return n, from, true, err
}

// An inbox has completions of receives that were polled and not looked at.
type inbox struct {
	qp    *packetQP
	turn  int // of the QP that was polled last
	wcs   [16]uverbs.WC
	next  int
	count int

	afterEarly bool // the last read has returned a datagram that has come by UDP
}

// poll polls the QPs in turn until one has received something.
func (p *PacketConn) poll(qps []*packetQP) (bool, error) {
	in := &p.inbox
	for range qps {
		in.turn = (in.turn + 1) % len(qps)
		in.qp = qps[in.turn]
		n, err := in.qp.recvCQ.Poll(in.wcs[:])
		in.next, in.count = 0, n
		if n > 0 || err != nil {
			return n > 0, err
		}
	}
	return false, nil
}

// take copies the next datagram of the inbox to b. It returns an invalid address if that is to be dropped.
func (p *PacketConn) take(b []byte) (n int, from netip.AddrPort, err error) {
	in := &p.inbox
	wc := &in.wcs[in.next]
	in.next++
	if wc.Status != uverbs.WCSuccess {
		return 0, netip.AddrPort{}, wc.Status
	}
	from, payload, ok := in.qp.received(wc)
	if ok && (!p.remote.IsValid() || from == p.remote) {
		n = copy(b, payload)
	} else {
		from = netip.AddrPort{}
	}
	return n, from, in.qp.postReceive(wc.WRID)
}

// sleepReader waits until there may be something to read.
func (p *PacketConn) sleepReader(qps []*packetQP) error {
	p.mu.Lock()
	if p.check(&p.reader) != nil || len(p.early) > 0 || len(p.qps) != len(qps) {
		p.mu.Unlock()
		return nil
	}
	if len(qps) == 0 {
		return p.sleep(&p.reader, nil)
	}
	for _, q := range qps[1:] {
		select {
		case q.kick <- struct{}{}:
		default: // it waits already
		}
	}
	return p.sleep(&p.reader, qps[0].recvCQ)
}

// WriteTo is [PacketConn.WriteToUDPAddrPort] for a *net.UDPAddr.
func (p *PacketConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	a, ok := addr.(*net.UDPAddr)
	if !ok || a == nil {
		return 0, p.opErrorTo("write", addr,
			fmt.Errorf("%w: an address of type %T: use a *net.UDPAddr", uverbs.ErrInvalid, addr))
	}
	return p.WriteToUDPAddrPort(b, a.AddrPort())
}

// Write sends a datagram to the address that was dialed: see [PacketConn.WriteToUDPAddrPort].
func (p *PacketConn) Write(b []byte) (int, error) {
	if !p.remote.IsValid() {
		return 0, p.opError("write", syscall.EDESTADDRREQ)
	}
	return p.writeTo(b, p.remote)
}

// WriteToUDPAddrPort sends a datagram. It returns when b may be used again, and waits only while the send queue is
// full. As with UDP, the datagram may be lost: if no program receives at the address, there is no error.
//
// It returns an error that matches [syscall.EMSGSIZE] if the datagram is longer than the path permits,
// [net.ErrWriteToConnected] after DialPacket, [ErrNoRDMA] if this machine's address for the peer belongs to no RDMA
// device, [net.ErrClosed] after Close, [os.ErrDeadlineExceeded] after the deadline, [uverbs.ErrDeviceGone] if the
// device was removed, and errors of UDP while the peer's QP is not known.
func (p *PacketConn) WriteToUDPAddrPort(b []byte, addr netip.AddrPort) (int, error) {
	if p.remote.IsValid() {
		return 0, p.opErrorTo("write", net.UDPAddrFromAddrPort(addr), net.ErrWriteToConnected)
	}
	return p.writeTo(b, unmapped(addr))
}

func (p *PacketConn) writeTo(b []byte, to netip.AddrPort) (int, error) {
	p.writer.lock.Lock()
	defer p.writer.lock.Unlock()
	if err := p.write(b, to); err != nil {
		return 0, p.opErrorTo("write", net.UDPAddrFromAddrPort(to), dialError(err))
	}
	return len(b), nil
}

// tooLong is the error of a datagram that is longer than the path permits.
type tooLong struct{ n, limit int }

func (e *tooLong) Error() string {
	return fmt.Sprintf("a datagram of %d bytes: the path permits %d", e.n, e.limit)
}
func (e *tooLong) Is(target error) bool { return target == syscall.EMSGSIZE }

// write sends a datagram. The caller holds p.writer.lock.
func (p *PacketConn) write(b []byte, to netip.AddrPort) error {
	if !p.bothFamilies && to.Addr().Is4() != p.is4 || !to.IsValid() {
		return &net.AddrError{Err: "an address of another family than that of " + p.local.String(), Addr: to.String()}
	}
	w, err := p.way(to)
	if err != nil {
		return err
	}
	if w.qp == nil {
		if w.qp, err = p.qpTo(to.Addr()); err != nil {
			return err
		}
		if err := p.setQP(to, w.qp); err != nil {
			return err
		}
		w.mtu = w.qp.mtu
	}
	if most := limit(w.mtu, to.Addr().Is4()); len(b) > most {
		p.routeDone(w.route)
		return &tooLong{len(b), most}
	}
	if w.route == nil {
		return p.writeContact(b, w.qp, to)
	}
	return p.writeDatagram(b, w.qp, w.route)
}

// A way is how a datagram reaches a peer.
type way struct {
	qp    *packetQP // the local one, or nil if there is none yet
	route *route    // busy, or nil: the datagram goes by UDP
	mtu   int       // of a datagram with its header
}

// way returns the way to a peer.
func (p *PacketConn) way(to netip.AddrPort) (w way, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.check(&p.writer); err != nil {
		return w, err
	}
	peer, err := p.peer(to)
	if err != nil {
		return w, err
	}
	peer.written = true
	if w.qp = peer.qp; w.qp != nil {
		w.mtu = w.qp.mtu
	}
	if peer.route == nil {
		p.want(peer)
	} else {
		w.mtu = peer.route.mtu
	}
	now := time.Now()
	if peer.route == nil || now.Sub(peer.contacted) >= contactInterval {
		peer.contacted = now
		return w, nil
	}
	w.route = peer.route
	w.route.busy++
	return w, nil
}

// setQP notes the QP for a peer.
func (p *PacketConn) setQP(to netip.AddrPort, q *packetQP) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	peer, err := p.peer(to)
	if err != nil {
		return err
	}
	peer.qp, peer.written = q, true
	return nil
}

// limit returns the length of the longest datagram by a path with an MTU. A datagram may also go by UDP.
func limit(mtu int, is4 bool) int {
	return min(datagramLen-contactHeaderLen(is4), mtu-datagramHeaderLen(is4))
}

// writeContact sends a datagram by UDP.
func (p *PacketConn) writeContact(b []byte, q *packetQP, to netip.AddrPort) error {
	p.contact = appendContact(p.contact[:0], contact{opData, q.qp.QPN(), b}, q.local.Addr())
	_, err := p.udp.WriteToUDPAddrPort(p.contact, to)
	return err
}

// writeDatagram sends a datagram by a route.
func (p *PacketConn) writeDatagram(b []byte, q *packetQP, r *route) error {
	slot, err := p.sendSlot(q)
	if err != nil {
		p.routeDone(r)
		return err
	}
	m := q.sends.Bytes()[slot*datagramLen:][:datagramLen]
	n := copy(m, q.header)
	n += copy(m[n:], b)
	if err := q.post(slot, n, r); err != nil {
		q.free = append(q.free, slot)
		p.routeDone(r)
		return err
	}
	q.routes[slot] = r
	return nil
}

// sendSlot returns a free slot of a QP, and waits for one if there is none.
func (p *PacketConn) sendSlot(q *packetQP) (int, error) {
	for len(q.free) <= len(q.routes)/2 {
		switch reaped, err := p.reap(q); {
		case err != nil:
			return 0, err
		case reaped:
			continue
		}
		if len(q.free) > 0 {
			break
		}
		p.mu.Lock()
		if err := p.check(&p.writer); err != nil {
			p.mu.Unlock()
			return 0, err
		}
		if err := p.sleep(&p.writer, q.sendCQ); err != nil {
			return 0, err
		}
	}
	slot := q.free[len(q.free)-1]
	q.free = q.free[:len(q.free)-1]
	return slot, nil
}

// reap frees the slots of datagrams that were sent, and reports whether there were any.
func (p *PacketConn) reap(q *packetQP) (bool, error) {
	n, err := q.sendCQ.Poll(q.wcs[:])
	for i := range q.wcs[:n] {
		wc := &q.wcs[i]
		if err == nil {
			err = wc.Err()
		}
		p.routeDone(q.routes[wc.WRID])
		q.routes[wc.WRID] = nil
		q.free = append(q.free, int(wc.WRID))
	}
	return n > 0, err
}

// routeDone notes that a datagram does not use a route any more, which may be nil.
func (p *PacketConn) routeDone(r *route) {
	if r == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	r.busy--
	p.fail(r.closeIdle())
}
