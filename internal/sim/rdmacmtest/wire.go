package rdmacmtest

import (
	"time"

	"github.com/goverbs/goverbs/internal/uapi"
)

// The kinds of messages between connection managers.
const (
	REQ      = "REQ"
	MRA      = "MRA"
	REP      = "REP"
	RTU      = "RTU"
	REJ      = "REJ"
	DREQ     = "DREQ"
	DREP     = "DREP"
	SIDRReq  = "SIDR_REQ"
	SIDRResp = "SIDR_REP"
)

// A Message is what the receiver of a message sees of it.
type Message struct {
	Kind     string
	From, To *Machine
	// In REQ and REP. SIDR_REP has the QPN.
	QPN, PSN                           uint32
	ResponderResources, InitiatorDepth uint8
	RetryCount, RNRRetryCount          uint8 // REP has no RetryCount
	SRQ                                bool
	Reason                             uint8 // in REJ; the status in SIDR_REP
	PrivateData                        []byte
}

// A Fate is what happens to a message.
type Fate struct {
	Copies int // that arrive; 0: it is lost
	Delay  time.Duration
}

// Timeouts are those of the connection manager. They count with [Kernel.RealTime] only.
type Timeouts struct {
	Reply   time.Duration // until a message without a reply is sent again
	Repeats int           // how often
	Ack     uint8         // the timeout of QPs, as in ibv_qp_attr, if the program sets none
}

// mraFactor is how many times longer a side waits for a reply if the peer has received its message.
const mraFactor = 16

// message returns a message with an id's parameters.
func (k *Kernel) message(kind string, i *id) *Message {
	p := &i.param
	return &Message{Kind: kind, From: i.machine, To: k.peerMachine(i), QPN: p.QpNum & 0xffffff, PSN: i.psn,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, RetryCount: min(p.RetryCount, 7),
		RNRRetryCount: min(p.RnrRetryCount, 7), SRQ: p.Srq != 0, PrivateData: append([]byte(nil),
			p.PrivateData[:p.PrivateDataLen]...)}
}

// peerMachine returns the machine at the other end of an id.
func (k *Kernel) peerMachine(i *id) *Machine {
	if i.child {
		return i.peer.machine
	}
	return k.machineAt(i)
}

// carry sends a message. arrive is called for each copy that arrives.
func (k *Kernel) carry(m *Message, arrive func(*Message)) {
	fate := Fate{Copies: 1}
	if k.OnMessage != nil {
		fate = k.OnMessage(m)
	}
	if !k.reaches(m.From, m.To) {
		return
	}
	m.fit()
	for range fate.Copies {
		if fate.Delay > 0 {
			k.after(fate.Delay, func() { k.arrived(m, arrive) })
		} else {
			k.arrived(m, arrive)
		}
	}
}

// arrived delivers a message, unless the receiver's device was removed.
func (k *Kernel) arrived(m *Message, arrive func(*Message)) {
	if !m.To.gone {
		m.To.arrive(m.Kind)
		arrive(m)
	}
}

// fit reduces the values to the width of their fields.
func (m *Message) fit() {
	m.QPN, m.PSN = m.QPN&0xffffff, m.PSN&0xffffff
	m.RetryCount, m.RNRRetryCount = m.RetryCount&7, m.RNRRetryCount&7
	rooms := map[string]uint8{REQ: roomREQ + headerREQ, REP: roomREP, REJ: roomREJ, SIDRReq: roomSREQ, SIDRResp: roomSREP}
	if room := int(rooms[m.Kind]); len(m.PrivateData) > room {
		m.PrivateData = m.PrivateData[:room]
	}
}

// param returns the parameters of the event for a message, from the receiver's view.
func (m *Message) param() (p uapi.RdmaUcmConnParam) {
	p.QpNum, p.ResponderResources, p.InitiatorDepth = m.QPN, m.InitiatorDepth, m.ResponderResources
	p.RetryCount, p.RnrRetryCount = m.RetryCount, m.RNRRetryCount
	if m.SRQ {
		p.Srq = 1
	}
	copy(p.PrivateData[:], m.PrivateData)
	return p
}

// reaches reports whether messages of one machine reach another.
func (k *Kernel) reaches(from, to *Machine) bool {
	return k.Reachable == nil || k.Reachable(from, to)
}

// repeat calls send, and again after each timeout while the id remains in the state. In the end the
// wait expires.
func (k *Kernel) repeat(i *id, s state, send func()) {
	i.patience = 1
	send()
	if k.RealTime {
		k.awaitReply(i, s, k.Timeouts.Repeats, send)
	}
}

func (k *Kernel) awaitReply(i *id, s state, left int, send func()) {
	k.after(time.Duration(i.patience)*k.Timeouts.Reply, func() {
		switch {
		case i.state != s || i.dead || k.ids[i.n] != i:
		case left == 0:
			k.expire(i)
		default:
			send()
			k.awaitReply(i, s, left-1, send)
		}
	})
}

// acknowledge notifies the sender of a message that it has arrived, but that the reply takes long.
func (k *Kernel) acknowledge(i *id) {
	k.carry(&Message{Kind: MRA, From: k.peerMachine(i), To: i.machine}, func(*Message) { i.patience = mraFactor })
}
