package fabric

import (
	"math/rand/v2"

	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// A Subnet is an InfiniBand subnet without a subnet manager: each port has the
// LIDs that it says it has. Packets for a multicast LID go to all ports but the
// sender's: devices know which of them they want. Packets for a LID of the
// sender's own come back to it.
//
// A device that is given a packet owns the Packet, but not its Payload: that is
// never changed.
type Subnet struct {
	network
	byLID map[uint16]*SubnetPort
}

// NewSubnet makes a subnet without ports.
func NewSubnet(c Config) *Subnet {
	return &Subnet{network: newNetwork(c), byLID: make(map[uint16]*SubnetPort)}
}

// A SubnetPort is a port of a subnet.
type SubnetPort struct {
	port
	subnet *Subnet
	lids   []uint16
}

// LIDs from firstMulticast on are multicast, but for the permissive one.
const (
	firstMulticast = 0xC000
	permissiveLID  = 0xFFFF
)

// packet is a packet on its way.
type packet struct{ *roce.Packet }

// packetHeaders is what a packet costs beyond its payload: its size is for the
// bounds of queues and for counters.
const packetHeaders = 8 + 12 // local route header, base transport header

func (p packet) size() int { return packetHeaders + len(p.Payload) }

func (p packet) header() header {
	return header{transport: true, opcode: p.Opcode, destQPN: p.DestQPN, psn: p.PSN}
}

func (p packet) satisfies(m *Match) bool {
	return m.Frame == nil && (m.Packet == nil || m.Packet(p.Packet))
}

// corrupt is for frames: AddFault refuses it.
func (p packet) corrupt(int, *rand.Rand) unit { return p }

// AddFault makes a fault happen from now on, and returns its number. A subnet
// does not corrupt: its packets are values without a checksum.
func (s *Subnet) AddFault(f Fault) (id int, err error) {
	if f.Action == Corrupt {
		return 0, errorf(ErrParam, "an InfiniBand subnet does not corrupt, its packets have no checksum: use drop")
	}
	return s.network.AddFault(f)
}

// Attach makes a port for a device, under a name of its own. receive gets the
// packets for it, link what becomes of the link; link may be nil. Each call is a
// step of its own. The port has no LID yet.
func (s *Subnet) Attach(name string, receive func(p *roce.Packet), link func(up bool)) (*SubnetPort, error) {
	p := &SubnetPort{subnet: s}
	give := func(u unit) {
		c := *u.(packet).Packet // it may be in other hands as well
		receive(&c)
	}
	if err := s.attach(name, &p.port, give, p.forward, link); err != nil {
		return nil, err
	}
	return p, nil
}

// SetLID gives the port 2^lmc LIDs from lid on, in place of those it had. With lid
// zero it has none.
func (p *SubnetPort) SetLID(lid uint16, lmc uint8) error {
	if lmc > 7 {
		return errorf(ErrParam, "LMC %d: from 0 to 7", lmc)
	}
	count := uint16(1) << lmc
	if lid&(count-1) != 0 || lid >= firstMulticast {
		return errorf(ErrParam, "LID %#x with LMC %d: unicast LIDs are 1 to 0xbfff, and the lowest LMC bits are zero", lid, lmc)
	}
	if p.gone {
		return errorf(ErrClosed, "port %q is detached", p.name)
	}
	if lid != 0 {
		for l := lid; l < lid+count; l++ {
			if q := p.subnet.byLID[l]; q != nil && q != p {
				return errorf(ErrExists, "LID %#x is port %q's", l, q.name)
			}
		}
	}
	p.dropLIDs()
	for l := lid; lid != 0 && l < lid+count; l++ {
		p.lids = append(p.lids, l)
		p.subnet.byLID[l] = p
	}
	return nil
}

func (p *SubnetPort) dropLIDs() {
	for _, l := range p.lids {
		delete(p.subnet.byLID, l)
	}
	p.lids = nil
}

// Packet sends a packet to the LID in its Route. The packet is the subnet's from
// then on.
func (p *SubnetPort) Packet(pkt *roce.Packet) {
	if !p.gone {
		p.send(packet{pkt})
	}
}

// Frame is what a port of a switch has: a subnet carries no frames, and counts
// them as malformed.
func (p *SubnetPort) Frame([]byte) {
	if !p.gone {
		p.counters.Malformed++
	}
}

// Detach takes the port off the subnet. What is under way to it is lost, and what
// it sends from then on.
func (p *SubnetPort) Detach() {
	p.dropLIDs()
	p.detach()
}

// forward hands a packet to the ports that it is for.
func (p *SubnetPort) forward(u unit) {
	dlid := u.(packet).Route.DLID
	if dlid < firstMulticast || dlid == permissiveLID {
		to := p.subnet.byLID[dlid]
		if to == nil {
			p.counters.NoRoute++
			return
		}
		to.to.pass(u)
		return
	}
	p.counters.Flooded++
	for _, to := range p.subnet.ports {
		if to != &p.port {
			to.to.pass(u)
		}
	}
}
