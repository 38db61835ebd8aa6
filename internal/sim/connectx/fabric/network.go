package fabric

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
)

// Config is the configuration of a switch or a subnet.
type Config struct {
	Loop *loop.Loop
	Seed uint64 // of the faults' random decisions
	// QueueBytes bounds the bytes queued for a port, in each direction; 64 MiB
	// if zero.
	QueueBytes int
}

// Counters are the counters of a port, from its device's view.
type Counters struct {
	Sent          uint64 `json:"sent"` // before faults
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"` // after faults
	ReceivedBytes uint64 `json:"received_bytes"`

	Malformed uint64 `json:"malformed"` // sent, but malformed
	NoRoute   uint64 `json:"no_route"`  // sent to an unknown LID, or to itself
	Flooded   uint64 `json:"flooded"`   // sent to all others
	LinkDown  uint64 `json:"link_down"` // lost because the link was down, in either direction
	Overflow  uint64 `json:"overflow"`  // lost because a queue was full, in either direction

	// Effects of faults, in either direction.
	Dropped    uint64 `json:"dropped"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
	Delayed    uint64 `json:"delayed"`
	Corrupted  uint64 `json:"corrupted"`
}

// A PortStatus is the status of a port.
type PortStatus struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`
	Counters Counters `json:"counters"`
}

// A unit is a frame or a packet. It is immutable.
type unit interface {
	size() int
	header() header
	satisfies(m *Match) bool // evaluates the functions of a Match
	corrupt(offset int, chance *rand.Rand) unit
}

// network is the common part of switch and subnet.
type network struct {
	loop     *loop.Loop
	seed     uint64
	limit    int
	ports    []*port // in the order of attachment
	rules    []*rule
	lastRule int
}

func newNetwork(c Config) network {
	if c.QueueBytes <= 0 {
		c.QueueBytes = 64 << 20
	}
	return network{loop: c.Loop, seed: c.Seed, limit: c.QueueBytes}
}

// Ports returns the ports in the order of attachment.
func (n *network) Ports() []PortStatus {
	all := make([]PortStatus, 0, len(n.ports))
	for _, p := range n.ports {
		all = append(all, PortStatus{p.name, p.up, p.counters})
	}
	return all
}

// SetLink sets a port's link state and notifies its device of a change.
func (n *network) SetLink(name string, up bool) error {
	p, err := n.find(name)
	if err != nil {
		return err
	}
	p.SetLink(up)
	return nil
}

// AddFault adds a fault and returns its id.
func (n *network) AddFault(f Fault) (id int, err error) {
	if err := f.check(); err != nil {
		return 0, err
	}
	if f.Port != "" {
		if _, err := n.find(f.Port); err != nil {
			return 0, err
		}
	}
	const most = 1000
	if len(n.rules) == most {
		return 0, errorf(ErrParam, "too many faults (%d): remove some", most)
	}
	n.lastRule++
	r := &rule{chance: rand.New(rand.NewPCG(n.seed, uint64(n.lastRule)))}
	r.ID, r.Fault = n.lastRule, f
	n.rules = append(n.rules, r)
	return r.ID, nil
}

// RemoveFault removes a fault. Packets that it has delayed still arrive.
func (n *network) RemoveFault(id int) error {
	i := slices.IndexFunc(n.rules, func(r *rule) bool { return r.ID == id })
	if i < 0 {
		return errorf(ErrUnknown, "fault %d: Faults lists the faults", id)
	}
	n.rules = slices.Delete(n.rules, i, i+1)
	return nil
}

// ClearFaults removes all faults.
func (n *network) ClearFaults() { n.rules = nil }

// Faults returns the faults in the order in which they were added.
func (n *network) Faults() []FaultStatus {
	all := make([]FaultStatus, 0, len(n.rules))
	for _, r := range n.rules {
		all = append(all, r.FaultStatus)
	}
	return all
}

func (n *network) find(name string) (*port, error) {
	for _, p := range n.ports {
		if p.name == name {
			return p, nil
		}
	}
	return nil, errorf(ErrUnknown, "port %q: Ports lists the ports", name)
}

// port is the common part of ports.
type port struct {
	net      *network
	name     string
	up       bool
	gone     bool // detached
	link     func(up bool)
	give     func(u unit) // to the device
	counters Counters
	from, to point
	queued   int // bytes on their way to the device
}

// attach creates a port. forward receives the device's packets, after the
// faults.
func (n *network) attach(name string, p *port, give, forward func(unit), link func(bool)) error {
	if name == "" {
		return errorf(ErrParam, "a port needs a name")
	}
	if _, err := n.find(name); err == nil {
		return errorf(ErrExists, "port %q: detach it, or use another name", name)
	}
	*p = port{net: n, name: name, up: true, link: link, give: give}
	p.from = point{port: p, direction: From, emit: forward}
	p.to = point{port: p, direction: To, emit: p.deliver}
	n.ports = append(n.ports, p)
	return nil
}

// Name returns the port's name.
func (p *port) Name() string { return p.name }

// Up reports whether the link is up. The link of a new port is up.
func (p *port) Up() bool { return p.up && !p.gone }

// Counters returns the port's counters.
func (p *port) Counters() Counters { return p.counters }

// SetLink sets the link state and notifies the device. Packets in transit are
// lost when it goes down.
func (p *port) SetLink(up bool) {
	if p.up == up || p.gone {
		return
	}
	p.up = up
	p.from.lose()
	p.to.lose()
	if p.link != nil {
		p.net.loop.Post(func() { p.link(up) })
	}
}

// detach removes the port from the network. Packets in transit to it are lost.
func (p *port) detach() {
	p.from.lose()
	p.to.lose()
	p.gone = true
	if i := slices.Index(p.net.ports, p); i >= 0 {
		p.net.ports = slices.Delete(p.net.ports, i, i+1)
	}
}

// send sends a packet of the device.
func (p *port) send(u unit) {
	p.counters.Sent++
	p.counters.SentBytes += uint64(u.size())
	p.from.pass(u)
}

// unitCost is the memory of a queued packet in addition to its bytes.
const unitCost = 256

// A flow identifies packets that keep their order: those to a queue pair.
type flow struct {
	to      *port
	destQPN uint32
}

// deliver passes a packet to the device, in a separate step.
func (p *port) deliver(u unit) {
	cost := u.size() + unitCost
	if p.queued+cost > p.net.limit {
		p.counters.Overflow++
		return
	}
	p.queued += cost
	arrive := func() {
		p.queued -= cost
		if !p.Up() {
			p.counters.LinkDown++
			return
		}
		p.counters.Received++
		p.counters.ReceivedBytes += uint64(u.size())
		p.give(u)
	}
	if l := p.net.loop; l.Seeded() {
		l.Deliver(flow{p, u.header().destQPN}, arrive)
	} else {
		l.Post(arrive)
	}
}

// point is where faults apply: one direction of a port.
type point struct {
	port      *port
	direction Direction
	emit      func(unit)
	held      []held // ordered by due time
	bytes     int    // of held
	timer     *loop.Timer
}

// held is a packet that is delayed, or waits to be overtaken.
type held struct {
	unit   unit
	due    time.Time
	behind int // so many packets must still overtake it
}

// pass applies the faults to a packet and sends it.
func (p *point) pass(u unit) {
	if !p.port.Up() {
		p.port.counters.LinkDown++
		return
	}
	f := p.port.net.decide(p, u)
	for range f.copies {
		if f.delay > 0 {
			p.hold(f)
		} else {
			p.send(f.unit)
		}
	}
}

// hold delays a packet.
func (p *point) hold(f fate) {
	cost := f.unit.size() + unitCost
	if p.bytes+cost > p.port.net.limit {
		p.port.counters.Overflow++
		return
	}
	p.bytes += cost
	h := held{f.unit, p.port.net.loop.Now().Add(f.delay), f.behind}
	i := len(p.held)
	for i > 0 && h.due.Before(p.held[i-1].due) {
		i--
	}
	p.held = slices.Insert(p.held, i, h)
	if i == 0 {
		p.arm()
	}
}

// arm sets the timer to the first packet that is due.
func (p *point) arm() {
	p.timer.Stop()
	p.timer = nil
	if len(p.held) > 0 {
		l := p.port.net.loop
		p.timer = l.After(l.Until(p.held[0].due), p.expire)
	}
}

// expire sends the packets that are due, in order.
func (p *point) expire() {
	now := p.port.net.loop.Now()
	for len(p.held) > 0 && !p.held[0].due.After(now) {
		p.send(p.release(0))
	}
	p.arm()
}

// release removes a packet from those held.
func (p *point) release(i int) unit {
	u := p.held[i].unit
	p.held = slices.Delete(p.held, i, i+1)
	p.bytes -= u.size() + unitCost
	return u
}

// send sends a packet, followed by those that have been overtaken often enough.
func (p *point) send(u unit) {
	p.emit(u)
	changed := false
	for i := 0; i < len(p.held); {
		h := &p.held[i]
		if h.behind > 0 {
			if h.behind--; h.behind == 0 {
				p.emit(p.release(i))
				changed = changed || i == 0
				continue
			}
		}
		i++
	}
	if changed {
		p.arm()
	}
}

// lose drops all held packets.
func (p *point) lose() {
	p.port.counters.LinkDown += uint64(len(p.held))
	p.held, p.bytes = nil, 0
	p.arm()
}
