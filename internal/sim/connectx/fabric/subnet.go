package fabric

import (
	"math/rand/v2"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// A Subnet is an InfiniBand subnet without a subnet manager: ports set their
// LIDs themselves. Packets for a multicast LID go to all ports but the
// sender's; devices filter them. Packets for one of the sender's own LIDs
// return to it.
//
// A device owns a received Packet, but not its Payload, which is immutable.
type Subnet struct {
	network
	byLID map[uint16]*SubnetPort
}

// NewSubnet returns a subnet without ports.
func NewSubnet(c Config) *Subnet {
	return &Subnet{network: newNetwork(c), byLID: make(map[uint16]*SubnetPort)}
}

// A SubnetPort is a port of a subnet.
type SubnetPort struct {
	port
	subnet *Subnet
	lids   []uint16
}

// LIDs from firstMulticast on are multicast, except the permissive LID.
const (
	firstMulticast = 0xC000
	permissiveLID  = 0xFFFF
)

// packet is a packet in transit.
type packet struct{ *roce.Packet }

// packetHeaders is the size of a packet's headers, for the bounds of queues and
// for counters.
const packetHeaders = 8 + 12 // local route header, base transport header

func (p packet) size() int { return packetHeaders + len(p.Payload) }

func (p packet) header() header {
	return header{transport: true, opcode: p.Opcode, destQPN: p.DestQPN, psn: p.PSN}
}

func (p packet) satisfies(m *Match) bool {
	return m.Frame == nil && (m.Packet == nil || m.Packet(p.Packet))
}

// corrupt is not called: AddFault refuses Corrupt.
func (p packet) corrupt(int, *rand.Rand) unit { return p }

// AddFault adds a fault and returns its id. A subnet has no Corrupt faults,
// because its packets have no checksum.
func (s *Subnet) AddFault(f Fault) (id int, err error) {
	if f.Action == Corrupt {
		return 0, errorf(ErrParam, "an InfiniBand subnet does not corrupt, its packets have no checksum: use drop")
	}
	return s.network.AddFault(f)
}

// Attach creates a port with a unique name. receive is called with its packets,
// and link, which may be nil, with changes of the link. Each call is in a
// separate step. The port has no LID yet.
func (s *Subnet) Attach(name string, receive func(p *roce.Packet), link func(up bool)) (*SubnetPort, error) {
	p := &SubnetPort{subnet: s}
	give := func(u unit) {
		c := *u.(packet).Packet // other devices may have it, too
		receive(&c)
	}
	if err := s.attach(name, &p.port, give, p.forward, link); err != nil {
		return nil, err
	}
	return p, nil
}

// SetLID sets the port's 2^lmc LIDs, from lid on. With lid zero the port has no
// LID.
func (p *SubnetPort) SetLID(lid uint16, lmc uint8) error {
	if lmc > 7 {
		return errorf(ErrParam, "LMC %d: from 0 to 7", lmc)
	}
	count := uint16(1) << lmc
	if lid&(count-1) != 0 || lid >= firstMulticast {
		return errorf(ErrParam, "LID %#x with LMC %d: unicast LIDs are 1 to 0xbfff, and the lowest LMC bits are zero", lid,
			lmc)
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

// Packet sends a packet to the LID in its Route. The subnet becomes the owner
// of the packet.
func (p *SubnetPort) Packet(pkt *roce.Packet) {
	if !p.gone {
		p.send(packet{pkt})
	}
}

// Frame counts a malformed frame: a subnet has no frames.
func (p *SubnetPort) Frame([]byte) {
	if !p.gone {
		p.counters.Malformed++
	}
}

// Detach removes the port from the subnet. Packets in transit to it are lost,
// as are packets that it sends later.
func (p *SubnetPort) Detach() {
	p.dropLIDs()
	p.detach()
}

// forward forwards a packet to its ports.
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
