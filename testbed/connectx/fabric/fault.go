package fabric

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/roce"
)

// An Action is what a Fault does to a packet.
type Action string

const (
	Drop      Action = "drop"
	Duplicate Action = "duplicate"
	Reorder   Action = "reorder"
	Delay     Action = "delay"
	Corrupt   Action = "corrupt" // frames only: a subnet's packets have no checksum to see it by
)

// A Direction is a way over a port, as its device sees it.
type Direction string

const (
	From Direction = "from" // what the device sends
	To   Direction = "to"   // what the device is given
)

// A Fault is what happens to packets of a port.
type Fault struct {
	Action    Action    `json:"action"`
	Port      string    `json:"port,omitempty"`      // every port if empty
	Direction Direction `json:"direction,omitempty"` // From if empty
	Match     Match     `json:"match,omitzero"`

	// Of the packets that match, the first Skip pass, and then Count are hit, all
	// if Count is zero. With a Probability between 0 and 1, chance decides which
	// are hit; zero is all of them.
	Skip        int     `json:"skip,omitempty"`
	Count       int     `json:"count,omitempty"`
	Probability float64 `json:"probability,omitempty"`

	// Delay: how long. Reorder: for how long a packet waits at most for those
	// that are to overtake it; 10 ms if zero.
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Reorder: how many packets of the same port and direction overtake it; 1 if
	// zero.
	Behind int `json:"behind,omitempty"`
	// Corrupt: the byte whose lowest bit is turned over, from the frame's end if
	// negative. Zero: any bit behind the Ethernet header.
	Offset int `json:"offset,omitempty"`
}

// A Match says which packets a Fault is about: those for which every field that
// is not zero is true.
type Match struct {
	EtherType uint16   `json:"ether_type,omitempty"` // behind VLAN tags
	Opcodes   Opcodes  `json:"opcodes,omitempty"`    // one of them, of the base transport header
	DestQPN   uint32   `json:"dest_qpn,omitempty"`
	PSNs      []uint32 `json:"psns,omitempty"` // one of them

	Frame  func(frame []byte) bool   `json:"-"` // of the switch
	Packet func(p *roce.Packet) bool `json:"-"` // of the subnet
}

// A FaultStatus is a Fault with what has become of it.
type FaultStatus struct {
	ID      int    `json:"id"`
	Fault   Fault  `json:"fault"`
	Matched uint64 `json:"matched"` // packets that it is about
	Hit     uint64 `json:"hit"`     // packets that it happened to
}

// reorderWait bounds how long a packet waits for others to overtake it.
const reorderWait = 10 * time.Millisecond

// check refuses what makes no sense, and fills in what was left open.
func (f *Fault) check() error {
	if f.Direction == "" {
		f.Direction = From
	}
	switch {
	case !slices.Contains([]Action{Drop, Duplicate, Reorder, Delay, Corrupt}, f.Action):
		return errorf(ErrParam, "action %q: drop, duplicate, reorder, delay or corrupt", f.Action)
	case f.Direction != From && f.Direction != To:
		return errorf(ErrParam, "direction %q: from (what the device sends) or to (what it is given)", f.Direction)
	case !(f.Probability >= 0 && f.Probability <= 1):
		return errorf(ErrParam, "probability %v: from 0 to 1", f.Probability)
	case f.Skip < 0 || f.Count < 0 || f.Behind < 0 || f.Delay < 0:
		return errorf(ErrParam, "skip, count, behind and delay are not negative")
	case f.Action == Delay && f.Delay == 0:
		return errorf(ErrParam, "a delay needs its time")
	case f.Action != Delay && f.Action != Reorder && f.Delay != 0:
		return errorf(ErrParam, "action %q has no delay: delay and reorder have", f.Action)
	case f.Action != Reorder && f.Behind != 0:
		return errorf(ErrParam, "action %q has no behind: reorder has", f.Action)
	case f.Action != Corrupt && f.Offset != 0:
		return errorf(ErrParam, "action %q has no offset: corrupt has", f.Action)
	}
	if f.Action == Reorder {
		f.Behind = max(f.Behind, 1)
		if f.Delay == 0 {
			f.Delay = reorderWait
		}
	}
	return nil
}

// header is what a Match looks at.
type header struct {
	etherType uint16
	transport bool // it has a base transport header: what follows counts
	opcode    roce.Opcode
	destQPN   uint32
	psn       uint32
}

func (m *Match) matches(u unit) bool {
	if m.EtherType != 0 || m.Opcodes != nil || m.DestQPN != 0 || m.PSNs != nil {
		h := u.header()
		switch {
		case m.EtherType != 0 && m.EtherType != h.etherType,
			m.Opcodes != nil && !(h.transport && slices.Contains(m.Opcodes, h.opcode)),
			m.DestQPN != 0 && !(h.transport && m.DestQPN == h.destQPN),
			m.PSNs != nil && !(h.transport && slices.Contains(m.PSNs, h.psn)):
			return false
		}
	}
	return u.satisfies(m)
}

// rule is a Fault at work.
type rule struct {
	FaultStatus
	chance *rand.Rand // its own: rules do not change each other's luck
}

// hits decides whether a packet is hit.
func (r *rule) hits(p *point, u unit) bool {
	f := &r.Fault
	if f.Direction != p.direction || f.Port != "" && f.Port != p.port.name || !f.Match.matches(u) {
		return false
	}
	r.Matched++
	if r.Matched <= uint64(f.Skip) || f.Count > 0 && r.Hit >= uint64(f.Count) {
		return false
	}
	if f.Probability > 0 && r.chance.Float64() >= f.Probability {
		return false
	}
	r.Hit++
	return true
}

// fate is what becomes of a packet at a point.
type fate struct {
	unit   unit
	copies int
	delay  time.Duration
	behind int // it waits until so many have overtaken it; 0 with delay: nobody
}

// decide asks all rules in the order in which they were made.
func (n *network) decide(p *point, u unit) fate {
	f := fate{unit: u, copies: 1}
	c := &p.port.counters
	for _, r := range n.rules {
		if !r.hits(p, u) {
			continue
		}
		switch r.Fault.Action {
		case Drop:
			c.Dropped++
			return fate{}
		case Duplicate:
			c.Duplicated++
			f.copies++
		case Delay:
			c.Delayed++
			f.delay += r.Fault.Delay
		case Reorder:
			c.Reordered++
			f.behind += r.Fault.Behind
			f.delay = max(f.delay, r.Fault.Delay)
		case Corrupt:
			c.Corrupted++
			f.unit = f.unit.corrupt(r.Fault.Offset, r.chance)
		}
	}
	return f
}
