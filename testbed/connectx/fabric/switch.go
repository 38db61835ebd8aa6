package fabric

import "github.com/goverbs/goverbs/testbed/connectx/roce"

// A Switch is an Ethernet switch. It learns from the frames which address is
// behind which port, and sends what is for an address that it does not know, and
// what is for many, to all ports but the one that it came from. VLAN tags pass as
// they are.
//
// A frame is never changed, neither by the switch nor by a device that is given
// one: it may be in other hands as well.
type Switch struct {
	network
	behind   map[MAC]*Port
	captures []*Capture
	sockets  sockets
}

// NewSwitch makes a switch without ports.
func NewSwitch(c Config) *Switch {
	return &Switch{network: newNetwork(c), behind: make(map[MAC]*Port)}
}

// A Port is a port of a switch.
type Port struct {
	port
	sw      *Switch
	learned int // addresses behind it
}

// Attach makes a port for a device of this process, under a name of its own.
// receive gets the frames for it, link what becomes of the link; link may be
// nil. Each call is a step of its own.
func (s *Switch) Attach(name string, receive func(frame []byte), link func(up bool)) (*Port, error) {
	p := &Port{sw: s}
	give := func(u unit) {
		s.capture(&p.port, u.(frame))
		receive(u.(frame))
	}
	if err := s.attach(name, &p.port, give, p.forward, link); err != nil {
		return nil, err
	}
	return p, nil
}

// Frame sends a frame, without its check sequence. The frame is the switch's from
// then on.
func (p *Port) Frame(b []byte) {
	if p.gone {
		return
	}
	if len(b) < ethernetHeader || len(b) > MaxFrame || frame(b).source().multicast() {
		p.counters.Malformed++
		return
	}
	if p.up {
		p.sw.capture(&p.port, b)
		p.sw.captureAll(b)
	}
	p.send(frame(b))
}

// Packet sends a packet of RoCE as a frame. One that has no form on Ethernet is
// counted as malformed.
func (p *Port) Packet(pkt *roce.Packet) {
	b, err := pkt.AppendFrame(nil)
	if err != nil && !p.gone {
		p.counters.Malformed++
		return
	}
	p.Frame(b)
}

// SetLink takes the link down or up, and tells the device. What is under way is
// lost when it goes down.
func (p *Port) SetLink(up bool) {
	if !up {
		p.forget()
	}
	p.port.SetLink(up)
}

// SetLink takes a port's link down or up, and tells its device. Nothing happens
// if it is so already.
func (s *Switch) SetLink(name string, up bool) error {
	p, err := s.find(name)
	if err != nil {
		return err
	}
	if !up {
		s.forget(p)
	}
	p.SetLink(up)
	return nil
}

// Detach takes the port off the switch. What is under way to it is lost, and what
// it sends from then on.
func (p *Port) Detach() {
	p.forget()
	p.detach()
}

// mostLearned bounds the addresses behind a port. One with more starts afresh:
// it pays for that by frames to all ports, and nobody else does.
const mostLearned = 1024

// learn remembers where an address is.
func (p *Port) learn(m MAC) {
	old := p.sw.behind[m]
	if old == p {
		return
	}
	if old != nil {
		old.learned--
	}
	if p.learned == mostLearned {
		p.forget()
	}
	p.sw.behind[m] = p
	p.learned++
}

// forget drops all addresses behind the port.
func (p *Port) forget() {
	if p.learned > 0 {
		p.sw.forget(&p.port)
	}
}

func (s *Switch) forget(p *port) {
	for m, at := range s.behind {
		if &at.port == p {
			at.learned = 0
			delete(s.behind, m)
		}
	}
}

// forward hands a frame to the ports that it is for.
func (p *Port) forward(u unit) {
	f := u.(frame)
	p.learn(f.source())
	dest := f.destination()
	if to := p.sw.behind[dest]; to != nil && !dest.multicast() {
		if to == p {
			p.counters.NoRoute++
			return
		}
		to.to.pass(f)
		return
	}
	p.counters.Flooded++
	for _, to := range p.sw.ports {
		if to != &p.port {
			to.to.pass(f)
		}
	}
}
