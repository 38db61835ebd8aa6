package engine

import (
	"errors"

	"github.com/goverbs/goverbs/testbed/connectx/roce"
	"github.com/goverbs/goverbs/testbed/connectx/transport"
)

// A Link is what a port is connected to.
type Link interface {
	// Packet hands a packet to an InfiniBand subnet.
	Packet(p *roce.Packet)
	// Frame hands a frame to an Ethernet.
	Frame(b []byte)
}

// A GIDEntry is an entry of the table of a port's own addresses.
type GIDEntry struct {
	GID     [16]byte
	Version roce.Version // on Ethernet: V1 or V2
	MAC     [6]byte
	Tagged  bool
	VLAN    uint16
}

// A port is the HCA's way to others.
type port struct {
	hca   *HCA
	link  Link
	up    bool
	lid   uint16
	mac   [6]byte
	most  int // bytes of the host's frames; 0: any
	gids  map[int]GIDEntry
	pkeys map[int]uint16
}

// defaultPKey is the P_Key of the partition that everybody is in.
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

// SetLink connects the port. Nil: to nothing.
func (h *HCA) SetLink(l Link) { h.port.link = l }

// SetLID sets the port's address in an InfiniBand subnet.
func (h *HCA) SetLID(lid uint16) { h.port.lid = lid }

// LID is the port's address in an InfiniBand subnet.
func (h *HCA) LID() uint16 { return h.port.lid }

// SetMAC sets the port's Ethernet address.
func (h *HCA) SetMAC(mac [6]byte) { h.port.mac = mac }

// MAC is the port's Ethernet address.
func (h *HCA) MAC() [6]byte { return h.port.mac }

// SetFrameLimit sets how long frames may be, from the addresses to the end of the
// data: longer ones are lost, those that are sent and those that come, RoCE's too.
// 0: of any length. What the port sends to itself is of any length.
func (h *HCA) SetFrameLimit(bytes int) { h.port.most = bytes }

// fits reports whether a frame is not too long for the port.
func (p *port) fits(bytes uint64) bool { return p.most == 0 || bytes <= uint64(p.most) }

// SetUp connects or disconnects the port, and tells the host. A port that is down
// loses all packets.
func (h *HCA) SetUp(up bool) {
	if up == h.port.up {
		return
	}
	h.port.up = up
	e := AsyncEvent{Type: EventPort, SubType: PortDown, Number: 1}
	if up {
		e.SubType = PortActive
	}
	h.config.Events.Async(e)
}

// Up reports whether the port is up.
func (h *HCA) Up() bool { return h.port.up }

// SetGID sets an entry of the table of addresses; the zero GID clears it.
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

// GID is an entry of the table of addresses.
func (h *HCA) GID(index int) GIDEntry { return h.port.gids[index] }

// SetPKey sets an entry of the table of partitions.
func (h *HCA) SetPKey(index int, pkey uint16) error {
	if index < 0 || index >= h.limits.PKeys {
		return failf(ErrParam, "P_Key index %d", index)
	}
	h.port.pkeys[index] = pkey
	return nil
}

// PKey is an entry of the table of partitions.
func (h *HCA) PKey(index int) uint16 { return h.port.pkeys[index] }

// Send resolves a path and hands the packet over.
func (p *port) Send(path *transport.Path, pkt *roce.Packet) {
	r := &pkt.Route
	*r = roce.Route{SLID: p.lid | uint16(path.PathBits), DLID: path.DLID, SL: path.SL, GRH: path.GRH, DGID: path.DGID,
		FlowLabel: path.FlowLabel, TrafficClass: path.TrafficClass, HopLimit: path.HopLimit}
	if path.GRH || p.hca.config.LinkLayer == Ethernet {
		g, ok := p.gids[int(path.SGIDIndex)]
		if !ok {
			return // no address to send from: lost, as on a wire
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

// transmit sends a packet to the link, to the port itself, or to both.
func (h *HCA) transmit(p *roce.Packet) {
	if !h.port.up {
		return
	}
	if h.own(p) {
		h.config.Loop.Post(func() { h.ReceivePacket(p) })
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

// own reports whether a packet is for the port that sends it.
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

// ReceivePacket takes a packet that has come for the port.
func (h *HCA) ReceivePacket(p *roce.Packet) {
	switch {
	case !h.port.up:
	case group(p):
		h.receiveGroup(p, false)
	default:
		if qp := h.destination(p.DestQPN); qp != nil {
			qp.endpoint.Receive(p)
		}
	}
}

// ReceiveFrame takes an Ethernet frame that has come for the port.
func (h *HCA) ReceiveFrame(b []byte) {
	if !h.port.up || !h.port.fits(uint64(len(b))) {
		return
	}
	p, err := roce.Parse(b)
	switch {
	case errors.Is(err, roce.ErrNotRoCE):
		h.steer(b, nil)
	case err != nil: // damaged on its way
	case group(p) || h.own(p):
		h.ReceivePacket(p)
	default:
		h.steer(b, nil)
	}
}

// destination is the queue pair that a packet is for. Numbers 0 and 1 are the
// oldest ones for management that are ready.
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

// multicast reports whether an address is a group's: IPv6's, or IPv4's in an IPv6
// one.
func multicast(gid [16]byte) bool {
	return gid[0] == 0xff || [12]byte(gid[:12]) == [12]byte{10: 0xff, 11: 0xff} && gid[12]>>4 == 0xe
}

// DetachMulticast ends a membership.
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

// receiveGroup hands a packet to all members of its group. One of the port's own
// does not go to those that want none.
func (h *HCA) receiveGroup(p *roce.Packet, own bool) {
	for _, qp := range h.groups[p.Route.DGID] {
		if own && qp.BlockLoopback {
			continue
		}
		one := *p
		one.Payload = append([]byte(nil), p.Payload...)
		qp.endpoint.Receive(&one)
	}
}
