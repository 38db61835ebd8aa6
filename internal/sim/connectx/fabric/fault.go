package fabric

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/roce"
)

// An Action is the effect of a Fault on a packet.
type Action string

const (
	Drop      Action = "drop"
	Duplicate Action = "duplicate"
	Reorder   Action = "reorder"
	Delay     Action = "delay"
	Corrupt   Action = "corrupt" // frames only: packets of a subnet have no checksum
)

// A Direction is a direction of a port, from its device's view.
type Direction string

const (
	From Direction = "from" // sent by the device
	To   Direction = "to"   // received by the device
)

// A Fault is a fault of a port's packets.
type Fault struct {
	Action    Action    `json:"action"`
	Port      string    `json:"port,omitempty"`      // all ports if empty
	Direction Direction `json:"direction,omitempty"` // default: From
	Match     Match     `json:"match,omitzero"`

	// Of the packets that match, the first Skip pass, and the next Count are
	// hit, or all if Count is zero. A Probability between 0 and 1 selects
	// packets to be hit at random; zero selects all.
	Skip        int     `json:"skip,omitempty"`
	Count       int     `json:"count,omitempty"`
	Probability float64 `json:"probability,omitempty"`

	// Delay: the delay. Reorder: how long a packet waits at most for others to
	// overtake it; 10 ms if zero.
	Delay time.Duration `json:"delay_ns,omitempty"`
	// Reorder: how many packets of the same port and direction overtake it; 1 if
	// zero.
	Behind int `json:"behind,omitempty"`
	// Corrupt: the byte whose lowest bit is inverted, from the frame's end if
	// negative. Zero inverts a random bit after the Ethernet header.
	Offset int `json:"offset,omitempty"`
}

// A Match selects packets: those that match every nonzero field.
type Match struct {
	EtherType uint16   `json:"ether_type,omitempty"` // after VLAN tags
	Opcodes   Opcodes  `json:"opcodes,omitempty"`    // any of these, in the base transport header
	DestQPN   uint32   `json:"dest_qpn,omitempty"`
	PSNs      []uint32 `json:"psns,omitempty"` // any of these

	Frame  func(frame []byte) bool   `json:"-"` // for the switch
	Packet func(p *roce.Packet) bool `json:"-"` // for the subnet
}

// A FaultStatus is a Fault and its counters.
type FaultStatus struct {
	ID      int    `json:"id"`
	Fault   Fault  `json:"fault"`
	Matched uint64 `json:"matched"` // packets that matched
	Hit     uint64 `json:"hit"`     // packets that were hit
}

// reorderWait bounds how long a packet waits for others to overtake it.
const reorderWait = 10 * time.Millisecond

// check checks the fields and sets defaults.
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

// header has the header fields for a Match.
type header struct {
	etherType uint16
	transport bool // the frame has a base transport header: the rest is valid
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

// rule is an active Fault.
type rule struct {
	FaultStatus
	chance *rand.Rand // private: rules do not affect each other's random decisions
}

// hits reports whether a packet is hit.
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

// fate is the effect of all faults on a packet at a point.
type fate struct {
	unit   unit
	copies int
	delay  time.Duration
	behind int // it waits until so many have overtaken it; 0 with delay: does not wait for others
}

// decide evaluates all rules in order of creation.
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
