package rdmacmtest

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"golang.org/x/sys/unix"
)

// A Machine has one device. A machine with several is several Machines, of which all but the first have a Host.
type Machine struct {
	Host      *Machine     // the first one, or nil
	Addrs     []netip.Addr // of the device
	DevIndex  uint32
	NodeGUID  uint64               // in memory byte order
	SGIDIndex uint8                // of all addresses but those of SGIDs
	SGIDs     map[netip.Addr]uint8 // indices in the GID table
	NetIndex  uint32               // the scope of link-local addresses
	Forgive   bool                 // what remains of it is not reported
	GID       netip.Addr           // on InfiniBand; else invalid
	LID       uint16               // on InfiniBand
	MTU       uint32               // IBV_MTU_* of the port; 0: Kernel.PathMTU
	gone      bool                 // the device was removed
	received  map[string]int
}

// A Kernel is that of one machine, or of several on one network. Its fields are
// the configuration and injected failures: set them before the first command, or
// with [Kernel.Set].
type Kernel struct {
	Machine
	Others []*Machine // on the same network
	// Current returns the machine of the calling goroutine, on which new ids are
	// created. If it is nil, that is the first machine.
	Current func() *Machine
	PathMTU uint32 // IBV_MTU_*
	// Caller, if not nil, returns the place in the program that the calling goroutine runs.
	Caller func() string
	// RealTime makes the resolution of addresses that do not reply last as long as its timeout, and requests
	// beyond a backlog wait until their repetition.
	RealTime bool
	Timeouts Timeouts
	// OnMessage, if not nil, is called with each message, which it may change, and returns what happens to it. It is
	// called with the lock.
	OnMessage func(*Message) Fate
	// Reachable, if not nil, reports whether messages of one machine reach another. It is called with the lock.
	Reachable func(from, to *Machine) bool
	// MulticastRoute makes all groups reachable, not only those in Addrs.
	MulticastRoute bool
	// NoGroups6 makes JOIN_MCAST refuse IPv6 groups, as on RoCE v2.
	NoGroups6 bool
	Services  bool // RESOLVE_IB_SERVICE succeeds, as on InfiniBand
	// NoServices makes RESOLVE_IB_SERVICE unknown, as before Linux 6.18.
	NoServices bool

	Refuse   map[string]unix.Errno // errors of commands by name
	FailAt   int                   // the number of the command that fails, counted from 1; GET_EVENT does not count
	FailWith unix.Errno            // with this errno
	Before   func(name string)     // called before each command, without the lock
	Stale    bool                  // the credentials have changed: every command fails with EACCES

	mu         sync.Mutex
	count      int
	log        []string
	violations []string
	files      map[int]*file // by the library's descriptor
	ids        map[uint32]*id
	groups     map[uint32]*group
	groupLIDs  map[[16]byte]uint16
	next       uint32
	nextKey    int
	nextGroup  uint32
	port       uint16
	psn        uint32
	hold       map[uint32]bool
	held       []*event
}

// firstPort is the first port that the kernel chooses.
const firstPort = 40001

// New is NewKernel for a test, at whose end the kernel is closed.
func New(t testing.TB) *Kernel {
	k := NewKernel()
	t.Cleanup(func() {
		if err := k.Close(); err != nil {
			t.Error(err)
		}
	})
	return k
}

// NewKernel returns a machine whose device has the addresses 192.0.2.1, 192.0.2.2 and
// 2001:db8::1.
func NewKernel() *Kernel {
	return &Kernel{
		Machine: Machine{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
			netip.MustParseAddr("2001:db8::1")}, NodeGUID: 0x0100_0000_fe00_5250, SGIDIndex: 2},
		PathMTU:  3,
		Timeouts: Timeouts{Reply: 500 * time.Millisecond, Repeats: 15, Ack: packetLifeExp},
		Refuse:   map[string]unix.Errno{},
		files:    map[int]*file{}, ids: map[uint32]*id{}, groups: map[uint32]*group{}, hold: map[uint32]bool{},
		groupLIDs: map[[16]byte]uint16{},
		port:      firstPort - 1, psn: 0x1000,
	}
}

// Open opens the node, as rdmacm.Open does.
func (k *Kernel) Open() (*rdmacm.File, error) {
	theirs, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	mine, err := unix.FcntlInt(uintptr(theirs), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, errors.Join(err, unix.Close(theirs))
	}
	f := &file{k: k, signal: mine, fd: theirs}
	k.mu.Lock()
	if k.Current != nil {
		f.machine = k.Current()
	}
	k.files[theirs] = f
	k.mu.Unlock()
	return rdmacm.NewFake(theirs, f)
}

// Set calls change between commands.
func (k *Kernel) Set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// Log returns the names of all commands so far except GET_EVENT.
func (k *Kernel) Log() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.log)
}

// IDs returns the existing ids in order of creation.
func (k *Kernel) IDs() []uint32 {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []uint32
	for n := range k.ids {
		all = append(all, n)
	}
	slices.Sort(all)
	return all
}

// State returns the state of an id: "idle", "bound", "resolved", "routed",
// "listening", "connecting", "requested", "accepted", "answered",
// "established", "disconnecting", "disconnected", "over", or "" if the id does
// not exist.
func (k *Kernel) State(n uint32) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.ids[n]; i != nil {
		return string(i.state)
	}
	return ""
}

// Count returns the number of ids of a machine that are bound to its device.
func (k *Kernel) Count(m *Machine) (n uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range k.ids {
		if i.machine == m && i.device {
			n++
		}
	}
	return n
}

// Descriptors returns the number of descriptors that the kernel itself uses.
func (k *Kernel) Descriptors() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.files)
}

// Received returns the number of messages of a kind that a machine has
// received: "req", "rep", "rej" and so on.
func (k *Kernel) Received(m *Machine, kind string) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return m.received[strings.ToUpper(kind)]
}

// arrive counts a message.
func (m *Machine) arrive(kind string) {
	if m.received == nil {
		m.received = map[string]int{}
	}
	m.received[kind]++
}

// after calls f, which posts events, after d if the kernel has real time, else at
// once.
func (k *Kernel) after(d time.Duration, f func()) {
	if !k.RealTime {
		f()
		return
	}
	time.AfterFunc(d, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		f()
	})
}

// machineOf returns the machine with an address or a GID, or nil.
func (k *Kernel) machineOf(a netip.Addr) *Machine {
	for _, m := range append([]*Machine{&k.Machine}, k.Others...) {
		if slices.Contains(m.Addrs, a.WithZone("")) || m.GID.IsValid() && m.GID == a {
			return m
		}
	}
	return nil
}

// host returns the first of the Machines that are one machine.
func (m *Machine) host() *Machine {
	if m.Host != nil {
		return m.Host
	}
	return m
}

// deviceAt returns the device of a machine that has an address, or nil.
func (k *Kernel) deviceAt(m *Machine, a netip.Addr) *Machine {
	if d := k.machineOf(a); d != nil && d.host() == m.host() && slices.Contains(d.Addrs, a.WithZone("")) {
		return d
	}
	return nil
}

// A Leftover is an id that has not been destroyed, or a file that has not been closed.
type Leftover struct {
	Machine *Machine
	Kind    string // "id" or "file"
	Text    string // the kind, the number and the state
	Created string // the place, see Kernel.Caller, or empty
}

func (l Leftover) String() string {
	text := "rdma_cm: " + l.Text
	if l.Created != "" {
		text += ", created at " + l.Created
	}
	return text
}

// Left returns what the library has not destroyed, but for machines that are forgiven.
func (k *Kernel) Left() (all []Leftover) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for fd, f := range k.files {
		if f.machine == nil || !f.machine.Forgive {
			all = append(all, Leftover{Machine: f.machine, Kind: "file", Text: fmt.Sprintf("file %d is not closed", fd)})
		}
	}
	for n, i := range k.ids {
		if !i.machine.Forgive {
			all = append(all, Leftover{i.machine, "id", fmt.Sprintf("id %d, %s, is not destroyed", n, i.state), i.created})
		}
	}
	slices.SortFunc(all, func(a, b Leftover) int { return strings.Compare(a.Text, b.Text) })
	return all
}

// Close reports violations and leaks.
func (k *Kernel) Close() error {
	errs := []error{k.Violations()}
	for _, l := range k.Left() {
		errs = append(errs, errors.New(l.String()))
	}
	return errors.Join(errs...)
}

// Violations reports violations by the library, once.
func (k *Kernel) Violations() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, v := range k.violations {
		errs = append(errs, errors.New("rdma_cm: "+v))
	}
	k.violations = nil
	return errors.Join(errs...)
}

func (k *Kernel) violation(format string, args ...any) {
	k.violations = append(k.violations, fmt.Sprintf(format, args...))
}

// A file is an open node.
type file struct {
	k       *Kernel
	machine *Machine // that has opened it
	fd      int      // the library's; may be reused after it was closed
	signal  int      // the fake kernel's
	events  []*event
	// Of a program in another process: see Foreign.
	foreign, raised bool
	theirs          int
}

// Closed destroys the ids of the file. Existing ids are violations: a test must
// destroy them first.
func (f *file) Closed() {
	k := f.k
	k.mu.Lock()
	defer k.mu.Unlock()
	for n, i := range k.ids {
		if i.file == f {
			if i.owned && !i.machine.Forgive && !f.foreign {
				k.violation("file closed with id %d, %s", n, i.state)
			}
			k.destroy(i)
		}
	}
	if k.files[f.fd] == f {
		delete(k.files, f.fd)
	}
	if err := unix.Close(f.signal); err != nil {
		k.violation("closing the signal: %v", err)
	}
}
