package engine

import (
	"errors"
	"slices"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
)

// A Link is the network of a port.
type Link interface {
	// Packet sends a packet to an InfiniBand subnet.
	Packet(p *roce.Packet)
	// Frame sends a frame to an Ethernet.
	Frame(b []byte)
}

// A GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	GID     [16]byte
	Version roce.Version // on Ethernet: V1 or V2
	MAC     [6]byte
	Tagged  bool
	VLAN    uint16
}

// A port is the HCA's port.
type port struct {
	hca        *HCA
	link       Link
	up         bool
	lid        uint16
	mac        [6]byte
	frameLimit int // maximum length of frames in bytes; 0 means no limit
	gids       map[int]GIDEntry
	pkeys      map[int]uint16
	counters   PortCounters
}

// defaultPKey is the P_Key of the default partition.
const defaultPKey = 0xffff

func (p *port) reset() {
	if p.hca.config.LinkLayer == Ethernet || p.gids == nil {
		p.gids = make(map[int]GIDEntry)
	}
	if p.pkeys == nil {
		p.pkeys = map[int]uint16{0: defaultPKey}
	}
}

func (p *port) pkey(index uint16) uint16 { return p.pkeys[int(index)] }

// SetLink connects the port to a link; nil disconnects it.
func (h *HCA) SetLink(l Link) { h.port.link = l }

// SetLID sets the port's LID.
func (h *HCA) SetLID(lid uint16) { h.port.lid = lid }

// LID returns the port's LID.
func (h *HCA) LID() uint16 { return h.port.lid }

// SetMAC sets the port's Ethernet address.
func (h *HCA) SetMAC(mac [6]byte) { h.port.mac = mac }

// MAC returns the port's Ethernet address.
func (h *HCA) MAC() [6]byte { return h.port.mac }

// SetFrameLimit sets the maximum length of frames, from the addresses to the
// end of the data. Longer frames are lost, when sent and when received,
// including RoCE's. 0 means no limit. The limit does not apply to loopback.
func (h *HCA) SetFrameLimit(bytes int) { h.port.frameLimit = bytes }

// fits reports whether the port may transfer a frame of the given length.
func (p *port) fits(bytes uint64) bool { return p.frameLimit == 0 || bytes <= uint64(p.frameLimit) }

// SetUp changes the state of the port and reports it to the host. A port that
// is down loses all packets.
func (h *HCA) SetUp(up bool) {
	if up == h.port.up {
		return
	}
	h.port.up = up
	e := AsyncEvent{Type: EventPort, SubType: PortDown, Number: 1}
	if up {
		e.SubType = PortActive
	} else {
		h.port.counters.Downs++
	}
	h.config.Events.Async(e)
}

// Up reports whether the port is up.
func (h *HCA) Up() bool { return h.port.up }

// SetGID sets an entry of the GID table; the zero GID clears it.
func (h *HCA) SetGID(index int, e GIDEntry) error {
	if index < 0 || index >= h.limits.GIDs {
		return failf(ErrParam, "GID index %d", index)
	}
	if e.GID == [16]byte{} {
		delete(h.port.gids, index)
		return nil
	}
	h.port.gids[index] = e
	return nil
}

// GID returns an entry of the GID table.
func (h *HCA) GID(index int) GIDEntry { return h.port.gids[index] }

// SetPKey sets an entry of the P_Key table.
func (h *HCA) SetPKey(index int, pkey uint16) error {
	if index < 0 || index >= h.limits.PKeys {
		return failf(ErrParam, "P_Key index %d", index)
	}
	h.port.pkeys[index] = pkey
	return nil
}

// PKey returns an entry of the P_Key table.
func (h *HCA) PKey(index int) uint16 { return h.port.pkeys[index] }

// Send resolves a path and sends the packet.
func (p *port) Send(path *transport.Path, pkt *roce.Packet) {
	r := &pkt.Route
	*r = roce.Route{SLID: p.lid | uint16(path.PathBits), DLID: path.DLID, SL: path.SL, GRH: path.GRH, DGID: path.DGID,
		FlowLabel: path.FlowLabel, TrafficClass: path.TrafficClass, HopLimit: path.HopLimit}
	if path.GRH || p.hca.config.LinkLayer == Ethernet {
		g, ok := p.gids[int(path.SGIDIndex)]
		if !ok {
			return // no source address: lost
		}
		r.SGID = g.GID
		if p.hca.config.LinkLayer == Ethernet {
			r.GRH, r.Version = true, g.Version
			r.SMAC, r.DMAC, r.Tagged, r.VLAN = g.MAC, path.DMAC, g.Tagged, g.VLAN
			if g.Tagged {
				r.VLAN |= uint16(path.SL) << 13
			}
			if r.SourcePort = path.UDPSport; r.SourcePort == 0 {
				r.SourcePort = roce.SourcePort(path.FlowLabel, pkt.DETH.SrcQPN, pkt.DestQPN)
			}
		}
	}
	p.hca.transmit(pkt)
}

// A flow identifies packets of the port to itself that keep their order.
type flow struct {
	hca     *HCA
	destQPN uint32
}

// loopback receives a packet of the port itself.
func (h *HCA) loopback(p *roce.Packet) {
	receive := func() { h.ReceivePacket(p) }
	if l := h.config.Loop; l.Seeded() {
		l.Deliver(flow{h, p.DestQPN}, receive)
	} else {
		l.Post(receive)
	}
}

// transmit sends a packet to the link, to the port itself, or to both.
func (h *HCA) transmit(p *roce.Packet) {
	if !h.port.up {
		return
	}
	countPacket(&h.port.counters.Sent, p)
	if h.own(p) {
		h.loopback(p)
		return
	}
	if group(p) {
		h.config.Loop.Post(func() { h.receiveGroup(p, true) })
	}
	if h.port.link == nil {
		return
	}
	if h.config.LinkLayer == InfiniBand {
		h.port.link.Packet(p)
		return
	}
	if b, err := p.AppendFrame(nil); err == nil && h.port.fits(uint64(len(b))) {
		h.port.link.Frame(b)
	}
}

// own reports whether a packet is for this port.
func (h *HCA) own(p *roce.Packet) bool {
	if h.config.LinkLayer == InfiniBand {
		return p.Route.DLID == h.port.lid && !group(p)
	}
	for _, g := range h.port.gids {
		if g.GID == p.Route.DGID {
			return true
		}
	}
	return false
}

// group reports whether a packet is for a multicast group.
func group(p *roce.Packet) bool { return p.DestQPN == 0xffffff }

// ReceivePacket processes a packet that arrived at the port.
func (h *HCA) ReceivePacket(p *roce.Packet) {
	if !h.port.up {
		return
	}
	countPacket(&h.port.counters.Received, p)
	switch {
	case group(p):
		h.receiveGroup(p, false)
	default:
		qp := h.destination(p.DestQPN)
		h.checkDestination(qp, p)
		if qp == nil {
			return
		}
		if qp.target != nil {
			qp.target.receive(p)
			return
		}
		qp.endpoint.Receive(p)
	}
}

// ReceiveFrame processes an Ethernet frame that arrived at the port.
func (h *HCA) ReceiveFrame(b []byte) {
	if !h.port.up || !h.port.fits(uint64(len(b))) {
		return
	}
	p, err := roce.Parse(b)
	switch {
	case errors.Is(err, roce.ErrNotRoCE):
		h.steer(b, nil)
	case err != nil: // damaged on the network
	case group(p) || h.own(p):
		h.ReceivePacket(p)
	default:
		h.steer(b, nil)
	}
}

// destination returns the queue pair with the given number. Numbers 0 and 1
// mean the oldest management queue pair that is ready.
func (h *HCA) destination(number uint32) *QP {
	if number < 2 {
		for _, qp := range h.management {
			if qp.Service == ServiceQP0+Service(number) && qp.state >= RTR {
				return qp
			}
		}
		return nil
	}
	if qp := h.qps.objects[number]; qp != nil && qp.Service != ServiceUMR {
		return qp
	}
	return nil
}

// AttachMulticast makes a datagram queue pair a member of a group.
func (h *HCA) AttachMulticast(number uint32, gid [16]byte) error {
	qp, err := h.qps.get(number)
	if err != nil {
		return err
	}
	if !qp.Service.datagram() || !multicast(gid) {
		return failf(ErrParam, "QP %#x of service %#x to group %x", number, uint8(qp.Service), gid)
	}
	members := h.groups[gid]
	if len(members) == 0 && len(h.groups) >= h.limits.Groups || len(members) >= h.limits.GroupQPs {
		return failf(ErrLimit, "%d groups, %d members", len(h.groups), len(members))
	}
	for _, m := range members {
		if m == qp {
			return nil
		}
	}
	h.groups[gid] = append(members, qp)
	qp.attached++
	return nil
}

// multicast reports whether an address is a multicast address: of IPv6, or of
// IPv4 mapped to IPv6.
func multicast(gid [16]byte) bool {
	return gid[0] == 0xff || [12]byte(gid[:12]) == [12]byte{10: 0xff, 11: 0xff} && gid[12]>>4 == 0xe
}

// DetachMulticast removes a queue pair from a group.
func (h *HCA) DetachMulticast(number uint32, gid [16]byte) error {
	members := h.groups[gid]
	for i, m := range members {
		if m.Number == number {
			m.attached--
			h.groups[gid] = append(members[:i:i], members[i+1:]...)
			if len(members) == 1 {
				delete(h.groups, gid)
			}
			return nil
		}
	}
	return failf(ErrResource, "QP %#x in group %x", number, gid)
}

// LeaveGroups removes a queue pair from all its multicast groups.
func (h *HCA) LeaveGroups(number uint32) {
	for gid, members := range h.groups {
		if slices.ContainsFunc(members, func(q *QP) bool { return q.Number == number }) {
			_ = h.DetachMulticast(number, gid) // it is a member
		}
	}
}

// receiveGroup passes a packet to all members of its group. A packet of this
// port does not go to members that block loopback.
func (h *HCA) receiveGroup(p *roce.Packet, own bool) {
	for _, qp := range h.groups[p.Route.DGID] {
		if own && qp.BlockLoopback {
			continue
		}
		one := *p
		one.Payload = append([]byte(nil), p.Payload...)
		h.toGroup = true
		qp.endpoint.Receive(&one)
		h.toGroup = false
	}
}
