package fabric

import "github.com/goverbs/goverbs/internal/sim/connectx/roce"

// A Switch is an Ethernet switch. It learns addresses from source addresses,
// and forwards multicast frames and frames to unknown addresses to all ports
// but the sender's. VLAN tags are forwarded unchanged.
//
// Frames are immutable, for the switch and for the devices that receive them: a
// frame may have several receivers.
type Switch struct {
	network
	behind   map[MAC]*Port
	captures []*Capture
	sockets  sockets
}

// NewSwitch returns a switch without ports.
func NewSwitch(c Config) *Switch {
	return &Switch{network: newNetwork(c), behind: make(map[MAC]*Port)}
}

// A Port is a port of a switch.
type Port struct {
	port
	sw      *Switch
	learned int // number of learned addresses
}

// Attach creates a port with a unique name for a device of this process.
// receive is called with its frames, and link, which may be nil, with changes
// of the link. Each call is in a separate step.
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

// Frame sends a frame, without its check sequence. The switch becomes the owner
// of the frame.
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

// Packet sends a RoCE packet as a frame. A packet without an Ethernet form is
// counted as malformed.
func (p *Port) Packet(pkt *roce.Packet) {
	b, err := pkt.AppendFrame(nil)
	if err != nil && !p.gone {
		p.counters.Malformed++
		return
	}
	p.Frame(b)
}

// SetLink sets the link state and notifies the device. Packets in transit are
// lost when it goes down.
func (p *Port) SetLink(up bool) {
	if !up {
		p.forget()
	}
	p.port.SetLink(up)
}

// SetLink sets a port's link state and notifies its device of a change.
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

// Detach removes the port from the switch. Frames in transit to it are lost, as
// are frames that it sends later.
func (p *Port) Detach() {
	p.forget()
	p.detach()
}

// maxLearned bounds the addresses per port. A port with more forgets all of
// them. This costs flooded frames for its addresses only.
const maxLearned = 1024

// learn records the port of an address.
func (p *Port) learn(m MAC) {
	old := p.sw.behind[m]
	if old == p {
		return
	}
	if old != nil {
		old.learned--
	}
	if p.learned == maxLearned {
		p.forget()
	}
	p.sw.behind[m] = p
	p.learned++
}

// forget removes all addresses of the port.
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

// forward forwards a frame to its ports.
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
