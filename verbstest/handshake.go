package verbstest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
)

// A HandshakeMessage is the kind of a message between connection managers.
type HandshakeMessage string

// The messages of connections (InfiniBand Architecture Specification, volume 1, 12.6). A client sends
// REQ, the server replies with REP or REJ, and the client confirms with RTU. Either side sends DREQ to
// disconnect, and the other replies with DREP. MRA means that a REQ or REP has arrived, and that the
// reply may take long. For datagrams there are SIDR_REQ and SIDR_REP.
const (
	REQ           HandshakeMessage = "REQ"
	MRA           HandshakeMessage = "MRA"
	REP           HandshakeMessage = "REP"
	RTU           HandshakeMessage = "RTU"
	REJ           HandshakeMessage = "REJ"
	DREQ          HandshakeMessage = "DREQ"
	DREP          HandshakeMessage = "DREP"
	DatagramREQ   HandshakeMessage = "SIDR_REQ"
	DatagramReply HandshakeMessage = "SIDR_REP"
)

var handshakeMessages = []HandshakeMessage{REQ, MRA, REP, RTU, REJ, DREQ, DREP, DatagramREQ, DatagramReply}

// A Handshake is a message between connection managers.
type Handshake struct {
	Message  HandshakeMessage
	From, To *Machine // cannot be changed
	// QPN and PSN are those of the sender, in a REQ or a REP; a DatagramReply has the QPN. They have
	// 24 bits.
	QPN, PSN uint32
	// The sender's values in a REQ or a REP. The counts have 3 bits. A REP has no RetryCount.
	ResponderResources, InitiatorDepth, RetryCount, RNRRetryCount uint8
	SRQ                                                           bool
	Reason                                                        uint8 // of a REJ; the status of a DatagramReply
	// PrivateData is the data of the sender's program. The receiver's program gets the field of the
	// message, which the kernel fills with zeros. Longer data is cut off.
	PrivateData []byte
}

// A HandshakeFault selects messages between connection managers, and what happens to them. A message
// that is repeated because its reply did not arrive is a message too: see [Network.SetTimeouts].
type HandshakeFault struct {
	Message  HandshakeMessage // "": all
	From, To *Machine         // the sender and the receiver; nil: all
	// The first Skip of the selected messages pass. The fault hits the next Count, or all if Count is 0.
	Skip, Count int
	// Action is Drop, Duplicate, Delay or, with Edit only, "".
	Action PacketAction
	Delay  time.Duration // with the action Delay
	// Edit, if not nil, changes a message before it is delivered. The receiver's kernel gets what fits
	// into the message. Edit is called with locks of the machines: it must not use them.
	Edit func(*Handshake)
}

// check returns what is wrong with a fault and how to fix it, or "".
func (f *HandshakeFault) check() string {
	switch {
	case f.Message != "" && !slices.Contains(handshakeMessages, f.Message):
		var names []string
		for _, m := range handshakeMessages {
			names = append(names, string(m))
		}
		return "there is no message " + string(f.Message) + ": there are " + strings.Join(names, ", ")
	case !slices.Contains([]PacketAction{"", Drop, Duplicate, Delay}, f.Action):
		return "the action " + string(f.Action) + " is for packets: use Drop, Duplicate or Delay"
	case f.Action == "" && f.Edit == nil:
		return "the fault has no effect: set Action or Edit"
	case f.Action == Drop && f.Edit != nil:
		return "a message that is dropped is not edited: set Action or Edit"
	case (f.Action == Delay) != (f.Delay > 0):
		return "the action Delay has a positive Delay, other actions have none"
	case f.Skip < 0 || f.Count < 0:
		return "Skip and Count are not negative"
	}
	return ""
}

// AddHandshakeFault adds a fault to the connection managers of the network's machines. The result
// removes it.
func (n *Network) AddHandshakeFault(f HandshakeFault) (remove func()) {
	n.t.Helper()
	if text := f.check(); text != "" {
		n.t.Fatalf("verbstest: AddHandshakeFault: %s", text)
	}
	for _, m := range []*Machine{f.From, f.To} {
		if m != nil {
			n.mustOwn(m)
		}
	}
	r := &handshakeRule{HandshakeFault: f}
	h := &n.handshakes
	h.Lock()
	defer h.Unlock()
	h.rules = append(h.rules, r)
	return func() {
		h.Lock()
		defer h.Unlock()
		h.rules = slices.DeleteFunc(h.rules, func(other *handshakeRule) bool { return other == r })
	}
}

// handshakes has the faults of the connection managers. It is locked after them.
type handshakes struct {
	sync.Mutex
	rules []*handshakeRule
}

type handshakeRule struct {
	HandshakeFault
	matched int
}

// hits reports whether a message is hit.
func (r *handshakeRule) hits(m *rdmacmtest.Message) bool {
	if r.Message != "" && string(r.Message) != m.Kind || r.From != nil && r.From.cm != m.From ||
		r.To != nil && r.To.cm != m.To {
		return false
	}
	r.matched++
	return r.matched > r.Skip && (r.Count == 0 || r.matched <= r.Skip+r.Count)
}

// onMessage evaluates the faults for a message, in the order in which they were added.
func (n *Network) onMessage(m *rdmacmtest.Message) rdmacmtest.Fate {
	fate := rdmacmtest.Fate{Copies: 1}
	h := &n.handshakes
	h.Lock()
	defer h.Unlock()
	for _, r := range h.rules {
		if !r.hits(m) {
			continue
		}
		switch r.Action {
		case Drop:
			return rdmacmtest.Fate{}
		case Duplicate:
			fate.Copies++
		case Delay:
			fate.Delay += r.Delay
		}
		if r.Edit != nil {
			n.edit(m, r.Edit)
		}
	}
	return fate
}

// edit applies an Edit to a message.
func (n *Network) edit(m *rdmacmtest.Message, edit func(*Handshake)) {
	e := &Handshake{Message: HandshakeMessage(m.Kind), From: n.machineOf(m.From), To: n.machineOf(m.To),
		QPN: m.QPN, PSN: m.PSN, ResponderResources: m.ResponderResources, InitiatorDepth: m.InitiatorDepth,
		RetryCount: m.RetryCount, RNRRetryCount: m.RNRRetryCount, SRQ: m.SRQ, Reason: m.Reason,
		PrivateData: slices.Clone(m.PrivateData)}
	edit(e)
	m.QPN, m.PSN, m.SRQ, m.Reason, m.PrivateData = e.QPN, e.PSN, e.SRQ, e.Reason, e.PrivateData
	m.ResponderResources, m.InitiatorDepth = e.ResponderResources, e.InitiatorDepth
	m.RetryCount, m.RNRRetryCount = e.RetryCount, e.RNRRetryCount
}

// machineOf returns the machine of a connection manager.
func (n *Network) machineOf(cm *rdmacmtest.Machine) *Machine {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, m := range n.machines {
		if m.cm == cm {
			return m
		}
	}
	return nil
}

// Timeouts are the times after which the machines of a network stop waiting for each other.
type Timeouts struct {
	// Reply is the time after which a connection manager sends a message again that had no reply, at
	// most Repeats times. Then the connection fails (cm.ErrUnreachable), or is disconnected. While the
	// peer's kernel has the message and its program has not replied, the time is 16 times longer. The
	// kernel's values are 4.3 s and 15.
	Reply   time.Duration
	Repeats int
	// Ack is the timeout of QPs that the connection manager connects, in the units of the InfiniBand
	// Architecture Specification: 4.096 µs << Ack. The kernel's value is 18, or 1 s.
	Ack uint8
}

// defaultTimeouts are those of new networks. A connection to a peer that does not reply fails after 4 s.
var defaultTimeouts = Timeouts{Reply: 500 * time.Millisecond, Repeats: 7, Ack: 18}

// SetTimeouts replaces the timeouts. Zero fields have the default: 500 ms, 7 and 18. Without faults,
// no timeout is reached.
func (n *Network) SetTimeouts(t Timeouts) {
	n.t.Helper()
	if t.Reply < 0 || t.Repeats < 0 || t.Ack > 31 {
		n.t.Fatalf("verbstest: SetTimeouts(%+v): times and counts are not negative, and Ack is at most 31", t)
	}
	if t.Reply == 0 {
		t.Reply = defaultTimeouts.Reply
	}
	if t.Repeats == 0 {
		t.Repeats = defaultTimeouts.Repeats
	}
	if t.Ack == 0 {
		t.Ack = defaultTimeouts.Ack
	}
	n.cm.Set(func() { n.cm.Timeouts = rdmacmtest.Timeouts(t) })
}
