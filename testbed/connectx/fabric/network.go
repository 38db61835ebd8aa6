package fabric

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/loop"
)

// Config is what a switch or a subnet needs.
type Config struct {
	Loop *loop.Loop
	Seed uint64 // of the faults' chances
	// QueueBytes bounds what waits for a port, in each direction; 64 MiB if zero.
	QueueBytes int
}

// Counters are those of a port. Sent and received is as its device sees it.
type Counters struct {
	Sent          uint64 `json:"sent"` // before faults
	SentBytes     uint64 `json:"sent_bytes"`
	Received      uint64 `json:"received"` // after faults
	ReceivedBytes uint64 `json:"received_bytes"`

	Malformed uint64 `json:"malformed"` // sent what no network carries
	NoRoute   uint64 `json:"no_route"`  // sent to a LID that nobody has, or to itself
	Flooded   uint64 `json:"flooded"`   // sent to all others
	LinkDown  uint64 `json:"link_down"` // lost because the link was down, either way
	Overflow  uint64 `json:"overflow"`  // lost because a queue was full, either way

	// What faults have done, either way.
	Dropped    uint64 `json:"dropped"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
	Delayed    uint64 `json:"delayed"`
	Corrupted  uint64 `json:"corrupted"`
}

// A PortStatus is a port as it is now.
type PortStatus struct {
	Name     string   `json:"name"`
	Up       bool     `json:"up"`
	Counters Counters `json:"counters"`
}

// unit is what a network carries: a frame or a packet. It is never changed.
type unit interface {
	size() int
	header() header
	satisfies(m *Match) bool // the functions of a Match
	corrupt(offset int, chance *rand.Rand) unit
}

// network is what the switch and the subnet have in common.
type network struct {
	loop     *loop.Loop
	seed     uint64
	limit    int
	ports    []*port // in the order in which they came
	rules    []*rule
	lastRule int
}

func newNetwork(c Config) network {
	if c.QueueBytes <= 0 {
		c.QueueBytes = 64 << 20
	}
	return network{loop: c.Loop, seed: c.Seed, limit: c.QueueBytes}
}

// Ports lists the ports in the order in which they were attached.
func (n *network) Ports() []PortStatus {
	all := make([]PortStatus, 0, len(n.ports))
	for _, p := range n.ports {
		all = append(all, PortStatus{p.name, p.up, p.counters})
	}
	return all
}

// SetLink takes a port's link down or up, and tells its device. Nothing happens
// if it is so already.
func (n *network) SetLink(name string, up bool) error {
	p, err := n.find(name)
	if err != nil {
		return err
	}
	p.SetLink(up)
	return nil
}

// AddFault makes a fault happen from now on, and returns its number.
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
		return 0, errorf(ErrParam, "there are %d faults: remove some", most)
	}
	n.lastRule++
	r := &rule{chance: rand.New(rand.NewPCG(n.seed, uint64(n.lastRule)))}
	r.ID, r.Fault = n.lastRule, f
	n.rules = append(n.rules, r)
	return r.ID, nil
}

// RemoveFault ends a fault. Packets that it has delayed come in their time.
func (n *network) RemoveFault(id int) error {
	i := slices.IndexFunc(n.rules, func(r *rule) bool { return r.ID == id })
	if i < 0 {
		return errorf(ErrUnknown, "fault %d: Faults lists those there are", id)
	}
	n.rules = slices.Delete(n.rules, i, i+1)
	return nil
}

// ClearFaults ends all faults.
func (n *network) ClearFaults() { n.rules = nil }

// Faults lists the faults in the order in which they were added.
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
	return nil, errorf(ErrUnknown, "port %q: Ports lists those there are", name)
}

// port is what all ports have in common.
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

// attach makes a port. forward takes what the device sends, behind the faults.
func (n *network) attach(name string, p *port, give, forward func(unit), link func(bool)) error {
	if name == "" {
		return errorf(ErrParam, "a port needs a name")
	}
	if _, err := n.find(name); err == nil {
		return errorf(ErrExists, "port %q: detach it, or take another name", name)
	}
	*p = port{net: n, name: name, up: true, link: link, give: give}
	p.from = point{port: p, direction: From, emit: forward}
	p.to = point{port: p, direction: To, emit: p.deliver}
	n.ports = append(n.ports, p)
	return nil
}

// Name is the port's name.
func (p *port) Name() string { return p.name }

// Up tells whether the link is up. A new port's is.
func (p *port) Up() bool { return p.up && !p.gone }

// Counters are the port's counters.
func (p *port) Counters() Counters { return p.counters }

// SetLink takes the link down or up, and tells the device. What is under way is
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

// detach takes the port off the network. What is under way to it is lost.
func (p *port) detach() {
	p.from.lose()
	p.to.lose()
	p.gone = true
	if i := slices.Index(p.net.ports, p); i >= 0 {
		p.net.ports = slices.Delete(p.net.ports, i, i+1)
	}
}

// send is a packet of the device's.
func (p *port) send(u unit) {
	p.counters.Sent++
	p.counters.SentBytes += uint64(u.size())
	p.from.pass(u)
}

// unitCost is what a packet that waits costs beyond its bytes.
const unitCost = 256

// deliver gives a packet to the device, in a step of its own.
func (p *port) deliver(u unit) {
	cost := u.size() + unitCost
	if p.queued+cost > p.net.limit {
		p.counters.Overflow++
		return
	}
	p.queued += cost
	p.net.loop.Post(func() {
		p.queued -= cost
		if !p.Up() {
			p.counters.LinkDown++
			return
		}
		p.counters.Received++
		p.counters.ReceivedBytes += uint64(u.size())
		p.give(u)
	})
}

// point is where faults happen: a port, in one direction.
type point struct {
	port      *port
	direction Direction
	emit      func(unit)
	held      []held // by the time at which they are due
	bytes     int    // of those held
	timer     *loop.Timer
}

// held is a packet that is delayed, or that others are to overtake.
type held struct {
	unit   unit
	due    time.Time
	behind int // so many more are to overtake it
}

// pass lets a packet through, after what the faults make of it.
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

// hold keeps a packet back.
func (p *point) hold(f fate) {
	cost := f.unit.size() + unitCost
	if p.bytes+cost > p.port.net.limit {
		p.port.counters.Overflow++
		return
	}
	p.bytes += cost
	h := held{f.unit, time.Now().Add(f.delay), f.behind}
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
		p.timer = p.port.net.loop.After(time.Until(p.held[0].due), p.expire)
	}
}

// expire sends what is due, in order.
func (p *point) expire() {
	now := time.Now()
	for len(p.held) > 0 && !p.held[0].due.After(now) {
		p.send(p.release(0))
	}
	p.arm()
}

// release takes a packet out of those held.
func (p *point) release(i int) unit {
	u := p.held[i].unit
	p.held = slices.Delete(p.held, i, i+1)
	p.bytes -= u.size() + unitCost
	return u
}

// send sends a packet, and behind it those that have now been overtaken often
// enough.
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

// lose drops what is held.
func (p *point) lose() {
	p.port.counters.LinkDown += uint64(len(p.held))
	p.held, p.bytes = nil, 0
	p.arm()
}
