package verbstest

import (
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/transport"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/uverbs"
)

// A PacketAction is what happens to a packet.
type PacketAction string

// The actions of packet faults.
const (
	Drop      PacketAction = "drop"
	Duplicate PacketAction = "duplicate"
	Delay     PacketAction = "delay"
	Reorder   PacketAction = "reorder" // the next packet overtakes it
)

// A PacketFault selects packets of a network, and what happens to them. Acknowledgements and
// retransmissions are packets too.
type PacketFault struct {
	Action PacketAction
	// From selects the packets that the machine sends, To those that it receives. At most one may
	// be set. If both are nil, the packets of all machines are selected.
	From, To *Machine
	// The first Skip of the selected packets pass. The fault hits the next Count, or all if Count
	// is 0, and of these only a part if Probability is not 0. Which ones depends on the order of
	// the packets alone.
	Skip, Count int
	Probability float64
	Delay       time.Duration // with the action Delay
}

// AddFault adds a fault to the network. The result removes it.
func (n *Network) AddFault(f PacketFault) (remove func()) {
	n.t.Helper()
	if f.From != nil && f.To != nil {
		n.t.Fatal("verbstest: a PacketFault has both From and To: set one")
	}
	fault := fabric.Fault{Action: fabric.Action(f.Action), Skip: f.Skip, Count: f.Count, Probability: f.Probability,
		Delay: f.Delay}
	for direction, m := range map[fabric.Direction]*Machine{fabric.From: f.From, fabric.To: f.To} {
		if m != nil {
			n.mustOwn(m)
			fault.Port, fault.Direction = m.name, direction
		}
	}
	var id int
	var err error
	n.loop.Run(func() { id, err = n.fabric.AddFault(fault) })
	if err != nil {
		n.t.Fatalf("verbstest: AddFault: %v", err)
	}
	return func() { n.loop.Run(func() { _ = n.fabric.RemoveFault(id) }) } // it may have been removed before
}

// mustOwn fails the test if a machine is on another network.
func (n *Network) mustOwn(m *Machine) {
	n.t.Helper()
	if m.net != n {
		n.t.Fatalf("verbstest: %s is on another network", m.name)
	}
}

// plan has the faults of the machine's kernel.
type plan struct {
	mu     sync.Mutex
	count  int // number of commands that can fail so far
	failIn int // number of commands until the one that fails; 0: none
	errno  unix.Errno
	delay  time.Duration
	refuse map[string]unix.Errno
}

// Commands returns the number of commands so far that [Machine.FailCommand] counts.
func (m *Machine) Commands() int {
	m.plan.mu.Lock()
	defer m.plan.mu.Unlock()
	return m.plan.count
}

// FailCommand makes the n-th command from now on fail, counted over all open devices of the
// machine: with 1, the next one. Commands that destroy an object and commands of the connection
// manager do not count.
func (m *Machine) FailCommand(n int, errno unix.Errno) {
	m.net.t.Helper()
	if n < 1 || errno == 0 {
		m.net.t.Fatalf("verbstest: FailCommand(%d, %d): n counts from 1, and the errno is not 0", n, errno)
	}
	m.plan.mu.Lock()
	defer m.plan.mu.Unlock()
	m.plan.failIn, m.plan.errno = n, errno
}

// Refuse makes all commands of a name fail, or none with errno 0. Names are those of the kernel's
// methods, such as QP.CREATE or REG_MR, as GOVERBS_TRACE=1 prints them. Commands that destroy an
// object cannot be refused.
func (m *Machine) Refuse(command string, errno unix.Errno) {
	m.net.t.Helper()
	names := slices.DeleteFunc(ioctltest.Names(), ioctltest.Destroys)
	switch {
	case ioctltest.Destroys(command):
		m.net.t.Fatalf("verbstest: Refuse: %s cannot fail: refuse a command that does not destroy an object", command)
	case !slices.Contains(names, command):
		m.net.t.Fatalf("verbstest: Refuse: there is no command %q: there are %s", command, strings.Join(names, ", "))
	}
	m.plan.mu.Lock()
	defer m.plan.mu.Unlock()
	if m.plan.refuse == nil {
		m.plan.refuse = map[string]unix.Errno{}
	}
	if m.plan.refuse[command] = errno; errno == 0 {
		delete(m.plan.refuse, command)
	}
}

// SetCommandTime makes each command take some time.
func (m *Machine) SetCommandTime(d time.Duration) {
	m.net.t.Helper()
	if d < 0 {
		m.net.t.Fatalf("verbstest: SetCommandTime(%v): use a positive time, or 0 for none", d)
	}
	m.plan.mu.Lock()
	defer m.plan.mu.Unlock()
	m.plan.delay = d
}

// fail returns the errno with which a command fails, or 0.
func (m *Machine) fail(command string) unix.Errno {
	p := &m.plan
	p.mu.Lock()
	defer p.mu.Unlock()
	if ioctltest.Destroys(command) {
		return 0
	}
	p.count++
	if p.failIn > 0 {
		if p.failIn--; p.failIn == 0 {
			return p.errno
		}
	}
	return p.refuse[command]
}

// Doorbell implements ioctl.Doorbells. It is not promoted because the compiler's wrapper of a promoted
// method leaves an entry on the race detector's stack with each call (Go 1.26).
func (f *file) Doorbell(page, offset uint32, b []byte) { f.Kernel.Doorbell(page, offset, b) }

// Ioctl implements ioctl.Kernel.
func (f *file) Ioctl(c ioctl.Call) error {
	f.m.plan.mu.Lock()
	delay := f.m.plan.delay
	f.m.plan.mu.Unlock()
	time.Sleep(delay)
	return f.Kernel.Ioctl(c)
}

// syndromes has the device's syndrome for each status of an error.
var syndromes = map[uverbs.WCStatus]transport.Syndrome{
	uverbs.WCLocLenErr:      transport.LocalLength,
	uverbs.WCLocQPOpErr:     transport.LocalQPOp,
	uverbs.WCLocProtErr:     transport.LocalProtection,
	uverbs.WCMWBindErr:      transport.BindError,
	uverbs.WCBadRespErr:     transport.BadResponse,
	uverbs.WCLocAccessErr:   transport.LocalAccess,
	uverbs.WCRemInvReqErr:   transport.RemoteInvalidRequest,
	uverbs.WCRemAccessErr:   transport.RemoteAccess,
	uverbs.WCRemOpErr:       transport.RemoteOp,
	uverbs.WCRetryExcErr:    transport.TransportRetry,
	uverbs.WCRNRRetryExcErr: transport.RNRRetry,
	uverbs.WCRemAbortErr:    transport.RemoteAborted,
}

// FailCompletion makes a completion of the QP an error, after skip others. A nil QP stands for any QP
// of the machine. The QP then changes to the error state, and its other requests are flushed.
func (m *Machine) FailCompletion(q *uverbs.QP, status uverbs.WCStatus, skip int) {
	m.net.t.Helper()
	syndrome, ok := syndromes[status]
	if !ok {
		m.net.t.Fatalf("verbstest: FailCompletion: no completion of an adapter has the status %q", status)
	}
	if skip < 0 {
		m.net.t.Fatalf("verbstest: FailCompletion: skip is %d: use 0 for the next completion", skip)
	}
	var number uint32 // any
	if q != nil {
		number = q.QPN()
	}
	var err error
	m.net.loop.Run(func() { err = m.adapter.HCA.InjectCompletion(number, syndrome, 0, skip, 1) })
	if err != nil {
		m.net.t.Fatalf("verbstest: FailCompletion: QP %#x on %s: %v: use an open QP of this machine, or nil for any", number,
			m.name, err)
	}
}

// SetPort sets the port of the machine's device up or down, as a cable does. Programs get the
// asynchronous event. A port that is down loses all packets, and messages between the connection
// managers of different machines.
func (m *Machine) SetPort(up bool) {
	m.net.t.Helper()
	m.mu.Lock()
	m.portDown = !up
	for _, f := range m.files {
		f.core.Set(func() { setState(f.core, up) })
	}
	m.mu.Unlock()
	m.net.cm.Set(func() { m.net.down[m.cm] = !up })
	var err error
	m.net.loop.Run(func() { err = m.net.fabric.SetLink(m.name, up) })
	if err != nil {
		m.net.t.Errorf("verbstest: SetPort: %v", err)
	}
}

// SetMTU sets the active MTU of the port of the machine's device, which is 4096 bytes otherwise. On RoCE it
// follows from the MTU of the network interface: an interface with 1500 bytes has [uverbs.MTU1024].
//
// Programs query the new value, and no QP can be connected with a longer PathMTU. Connections of the
// connection manager that the machine requests from now on have this path MTU; on InfiniBand, it is the
// smaller one of both ends. QPs that are connected keep theirs. The network carries packets of up to 4096
// bytes to every machine, as an Ethernet does if its frames have the room: a datagram that is longer than
// the receiver's MTU arrives.
func (m *Machine) SetMTU(mtu uverbs.MTU) {
	m.net.t.Helper()
	if mtu < uverbs.MTU256 || mtu > uverbs.MTU4096 {
		m.net.t.Fatalf("verbstest: SetMTU(%d): use one of the constants uverbs.MTU256 to uverbs.MTU4096", mtu)
	}
	m.mu.Lock()
	m.mtu = mtu
	for _, f := range m.files {
		f.core.Set(func() { f.core.Ports[0].ActiveMtu = uint8(mtu) })
	}
	m.mu.Unlock()
	m.net.cm.Set(func() { m.cm.MTU = uint32(mtu) })
}

// setState sets the state that the kernel reports for the port.
func setState(k *ioctltest.Kernel, up bool) {
	p := &k.Ports[0]
	if up {
		p.State, p.PhysState = uint8(uverbs.PortActive), physLinkUp
	} else {
		p.State, p.PhysState = uint8(uverbs.PortDown), physDisabled
	}
}

// The values of phys_state: enum ib_port_phys_state.
const (
	physDisabled = 3
	physLinkUp   = 5
)

// RemoveDevice removes the device from the machine, as hot-unplugging does.
func (m *Machine) RemoveDevice() {
	m.mu.Lock()
	m.removed = true
	files := slices.Clone(m.files)
	m.mu.Unlock()
	for _, f := range files {
		f.Removed()
		f.core.Unplug()
	}
	m.net.cm.Remove(m.cm)
	m.net.loop.Run(func() { m.adapter.HCA.SetUp(false) })
}
