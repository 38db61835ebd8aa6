package engine

import "github.com/goverbs/goverbs/internal/sim/connectx/prm"

// steer passes a frame to the destinations in the flow tables. own is the
// transport domain of the sender if the frame is from this port.
func (h *HCA) steer(frame []byte, own *uint32) {
	if !h.port.up || len(frame) < 14 || !h.port.fits(uint64(len(frame))) {
		return
	}
	countFrame(&h.port.counters.FramesReceived, frame)
	p := parseFrame(frame)
	s := steering{hca: h, frame: &p, match: p.match(), own: own, left: h.limits.Flows + maxLookups}
	s.lookUp(h.eth.roots[NICReceive])
}

// maxLookups bounds, in addition to the number of flows, the tables, flows and
// destinations visited for a frame: flows can multiply it.
const maxLookups = 1 << 10

// A steering is the state of steering a frame.
type steering struct {
	hca   *HCA
	frame *parsed
	match *[512]byte
	own   *uint32
	left  int // tables, flows and destinations that may still be visited
}

// lookUp carries out the actions of a table's first flow that matches.
func (s *steering) lookUp(table uint32) {
	t := s.hca.eth.tables.objects[table]
	if s.left--; t == nil || s.left < 0 {
		return
	}
	for _, place := range t.order {
		if s.left--; s.left < 0 {
			return
		}
		f := t.flows[place]
		if !t.groups[f.Group].matches(f, s.match) {
			continue
		}
		if f.Forward && !f.Drop {
			s.forward(f)
		}
		return
	}
	s.lookUp(t.MissTable)
}

// forward passes the frame to a flow's destinations.
func (s *steering) forward(f *Flow) {
	for _, d := range f.Dests {
		if d.Type == FlowToTable {
			s.lookUp(d.Number)
		} else if tir := s.hca.eth.tirs.objects[d.Number]; tir != nil && s.left > 0 {
			s.left--
			tir.receive(s.hca, s.frame, f.Tag, s.own)
		}
	}
}

// criteria is the length of the part for one bit of Criteria.
const criteria = 64

// matches reports whether a packet matches a flow.
func (g *FlowGroup) matches(f *Flow, packet *[512]byte) bool {
	for part := range len(packet) / criteria {
		if g.Criteria>>part&1 == 0 {
			continue
		}
		for i := part * criteria; i < (part+1)*criteria; i += 8 {
			if (be64(packet[i:])^be64(f.Match[i:]))&be64(g.Mask[i:]) != 0 {
				return false
			}
		}
	}
	return true
}

// match returns a packet's match parameters.
func (p *parsed) match() *[512]byte {
	var m [512]byte
	o := prm.FlowMatchOuter.Bytes(m[:])
	copy(prm.FlowHeadersDMAC.Bytes(o), p.frame[:6])
	copy(prm.FlowHeadersSMAC.Bytes(o), p.frame[6:12])
	prm.FlowHeadersEthertype.Set(o, uint64(p.kind))
	if p.vlan {
		tag := prm.FlowHeadersCvlanTag
		if p.qinq {
			tag = prm.FlowHeadersSvlanTag
		}
		tag.Set(o, 1)
		prm.FlowHeadersFirstPrio.Set(o, uint64(p.tag>>13))
		prm.FlowHeadersFirstCFI.Set(o, uint64(p.tag>>12))
		prm.FlowHeadersFirstVid.Set(o, uint64(p.tag))
	}
	if p.ip {
		p.matchIP(o, prm.FlowMatchMisc.Bytes(m[:]))
	}
	return &m
}

func (p *parsed) matchIP(o, misc []byte) {
	b := p.frame[p.l3:]
	prm.FlowHeadersIPProtocol.Set(o, uint64(p.proto))
	prm.FlowHeadersFrag.SetBool(o, p.fragment)
	src, dst := prm.FlowHeadersSrcIP.Bytes(o), prm.FlowHeadersDstIP.Bytes(o)
	copy(src[16-len(p.src):], p.src)
	copy(dst[16-len(p.dst):], p.dst)
	class := b[1]
	if p.v6 {
		class = b[0]<<4 | b[1]>>4
		prm.FlowHeadersIPVersion.Set(o, 6)
		prm.FlowHeadersTTLHoplimit.Set(o, uint64(b[7]))
		prm.FlowMiscOuterIPV6FlowLabel.Set(misc, uint64(be32(b)))
	} else {
		prm.FlowHeadersIPVersion.Set(o, 4)
		prm.FlowHeadersTTLHoplimit.Set(o, uint64(b[8]))
		prm.FlowHeadersIPV4Ihl.Set(o, uint64(b[0]))
	}
	prm.FlowHeadersIPDSCP.Set(o, uint64(class>>2))
	prm.FlowHeadersIPECN.Set(o, uint64(class))
	if p.l4 == 0 {
		return
	}
	sport, dport := uint64(be16(p.frame[p.l4:])), uint64(be16(p.frame[p.l4+2:]))
	if p.proto == protoUDP {
		prm.FlowHeadersUDPSport.Set(o, sport)
		prm.FlowHeadersUDPDport.Set(o, dport)
		return
	}
	prm.FlowHeadersTCPSport.Set(o, sport)
	prm.FlowHeadersTCPDport.Set(o, dport)
	prm.FlowHeadersTCPFlags.Set(o, uint64(be16(p.frame[p.l4+12:])))
}
