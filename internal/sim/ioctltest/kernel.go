package ioctltest

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// A Kernel handles the commands of one open node. Its fields describe the device and the errors
// it simulates. Set them before the first command, or with [Kernel.Set].
type Kernel struct {
	Driver   uint32
	Vectors  uint32
	Device   uapi.IbUverbsQueryDeviceResp
	Extended uapi.IbUverbsExQueryDeviceResp // in addition to Device
	Ports    []uapi.IbUverbsQueryPortResp
	GIDs     []uapi.IbUverbsGidEntry
	Rereg    uint32 // the flags of REREG_MR that the driver supports
	Speed    uint64 // of each port, in 100 Mb/s; 0: the driver does not report it
	// maximum rate limit of a QP, in kb/s; 0: the driver does not support rate limits
	RateMax uint32
	// the descriptor of a dma-buf of one page; 0: the driver does not support dma-bufs
	DMABuf int
	// DMElsewhere returns how much device memory other files have, in bytes; nil: none. It is
	// called with the lock.
	DMElsewhere func() uint64
	XRC         bool   // the driver supports XRC
	NetRaw      bool   // the process may set privileged QKeys and use raw packets and flows
	Raw         bool   // the driver supports raw packets, flows and WQs
	Memlock     uint64 // REG_MR of more bytes fails with ENOMEM; 0: no limit
	NoBursts    bool   // register pages cannot be mapped write-combining
	// size of a mapping of register pages of 4 KiB each; 0: one page of the CPU
	UARLength int
	UARBase   uint32                                  // added to the numbers of register pages
	Refuse    map[string]unix.Errno                   // errors of commands by name
	FailAt    int                                     // the number of the command that fails, counted from 1
	FailWith  unix.Errno                              // the errno of FailAt
	Before    func(*Msg)                              // is called before each command, without the lock
	Fail      func(name string) unix.Errno            // is called before each command; an errno makes it fail
	Recorder  func(name, dump string)                 // is called with each command
	OnDriver  func(m *Msg, handle, qpn uint32) []byte // returns the driver's reply to a create command
	// Foreign is set if a program of another process issues the commands. What the kernel refuses is then no
	// violation, and event descriptors have keys instead of numbers: see TakeDescriptor.
	Foreign bool
	// Name precedes what Close reports. Caller returns the line of the program that creates an object,
	// or an empty string; nil: Close reports no lines.
	Name   string
	Caller func() string
	// OnModifyQP changes the device's QP. If it fails, the QP does not change.
	OnModifyQP func(r *uapi.IbUverbsModifyQp, from, to uint8) error
	OnResizeCQ func() error // resizes the device's CQ
	// DriverQP returns the type of a QP of type IB_QPT_DRIVER from the driver's input: [DCT], [DCI], [SRD],
	// or 0 if it is neither. It is nil if the driver has no such QPs.
	DriverQP func(uhwIn []byte) uint8
	// OnQueryQP completes the reply to QUERY_QP, which has the state.
	OnQueryQP func(handle uint32, r *uapi.IbUverbsQueryQpResp)

	mu         sync.Mutex
	count      int
	log        []string
	violations []string
	objects    map[uint32]*object
	lowest     uint32           // no lower handle is free
	channels   map[int]int      // the library's end of each event descriptor, or its key, and ours
	handedOut  map[int]int      // the ends of descriptors with a key that have not been taken
	places     map[int]string   // where each was created: see Caller
	waiting    map[int]*backlog // by our end of an event descriptor
	async      int              // the library's end of the first event file, or -1
	context    bool
	unplugged  bool
	nextQPN    uint32
	nextSRQN   uint32
	nextKey    int
	forgetAt   int // see forgetClosed
}

// NewKernel returns the kernel of a device with one active RoCE port and three GIDs.
func NewKernel(driver uint32) *Kernel {
	port := uapi.IbUverbsQueryPortResp{State: 4, MaxMtu: 5, ActiveMtu: 3, GidTblLen: 16, PkeyTblLen: 1, MaxMsgSz: 1 << 31,
		ActiveWidth: 1, ActiveSpeed: 1, PhysState: 5, LinkLayer: 2, Flags: 0x10}
	v4 := [16]byte{10: 0xff, 11: 0xff, 12: 192, 13: 0, 14: 2, 15: 1}
	return &Kernel{Driver: driver, Vectors: 2, XRC: true,
		Device: uapi.IbUverbsQueryDeviceResp{FwVer: 1<<32 | 2<<16 | 3, MaxMrSize: 1 << 40, MaxQp: 64,
			MaxQpWr: 1024, MaxSge: 16,
			MaxCq: 64, MaxCqe: 4096, MaxMr: 64, MaxPd: 64, MaxAh: 64, MaxSrq: 8, MaxSrqWr: 512, MaxSrqSge: 8, MaxQpRdAtom: 16,
			MaxQpInitRdAtom: 16, PhysPortCnt: 1},
		Ports: []uapi.IbUverbsQueryPortResp{port},
		GIDs: []uapi.IbUverbsGidEntry{
			{Gid: [16]byte{0: 0xfe, 1: 0x80, 15: 1}, PortNum: 1, GidType: 1},
			{Gid: [16]byte{0: 0xfe, 1: 0x80, 15: 1}, GidIndex: 1, PortNum: 1, GidType: 2},
			{Gid: v4, GidIndex: 2, PortNum: 1, GidType: 2},
		},
		objects: map[uint32]*object{}, channels: map[int]int{}, places: map[int]string{},
		async: -1, nextQPN: 17}
}

// Open returns a node whose commands k handles.
func (k *Kernel) Open(t testing.TB, name string) *ioctl.Device {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 1<<20); err != nil {
		t.Fatal(err)
	}
	return ioctl.NewFake(fd, name, k.Driver, k)
}

// Set changes the kernel between commands.
func (k *Kernel) Set(change func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	change()
}

// Log returns the names of the commands issued so far.
func (k *Kernel) Log() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.log)
}

// Count returns how often a command was issued.
func (k *Kernel) Count(name string) int {
	n := 0
	for _, s := range k.Log() {
		if s == name {
			n++
		}
	}
	return n
}

// A Leftover is an object that has not been destroyed, or an event descriptor that has not been closed.
type Leftover struct {
	Kind    string
	Number  int
	Created string // the place, see Kernel.Caller, or an empty string
}

func (l Leftover) String() string {
	text := fmt.Sprintf("%s %d", l.Kind, l.Number)
	if l.Created != "" {
		text += ", created at " + l.Created
	}
	return text
}

// Live describes what Left returns.
func (k *Kernel) Live() []string {
	var all []string
	for _, l := range k.Left() {
		all = append(all, l.String())
	}
	slices.Sort(all)
	return all
}

// Left returns the objects that have not been destroyed, and the event descriptors that have not been closed.
func (k *Kernel) Left() []Leftover {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []Leftover
	for h, o := range k.objects {
		all = append(all, Leftover{o.kind, int(h), o.created})
	}
	for fd, mine := range k.channels {
		if !hungUp(mine) {
			all = append(all, Leftover{"event descriptor", fd, k.places[fd]})
		}
	}
	slices.SortFunc(all, func(a, b Leftover) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(a.Number, b.Number))
	})
	return all
}

// Descriptors returns the number of descriptors that the kernel itself uses.
func (k *Kernel) Descriptors() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.channels)
}

// Objects returns the numbers of objects that have not been destroyed, by kind.
func (k *Kernel) Objects() map[string]uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	all := map[string]uint64{}
	for _, o := range k.objects {
		all[o.kind]++
	}
	return all
}

// CloseLater closes a context at the end of the test, and then k.
func (k *Kernel) CloseLater(t testing.TB, ctx io.Closer) {
	t.Cleanup(func() {
		if err := ctx.Close(); err != nil {
			t.Errorf("Context.Close: %v", err)
		}
		k.Close(t)
	})
}

// Close reports violations by the library and objects that it did not destroy.
func (k *Kernel) Close(t testing.TB) {
	t.Helper()
	for _, l := range k.Left() {
		t.Errorf("%sleft in the kernel: %s", k.Name, l)
	}
	k.Finish(t)
}

// Finish is Close without the objects.
func (k *Kernel) Finish(t testing.TB) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.violations {
		t.Errorf("%sthe kernel refused: %s", k.Name, s)
	}
	for fd, mine := range k.channels {
		if err := unix.Close(mine); err != nil {
			t.Error(err)
		}
		delete(k.channels, fd)
	}
}

// Ioctl implements ioctl.Kernel.
func (k *Kernel) Ioctl(c ioctl.Call) error {
	m, err := decode(c, k.Driver)
	if k.Before != nil {
		k.Before(m)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.Recorder != nil {
		k.Recorder(m.Name, dump(m.Name, c))
	}
	k.count++
	k.log = append(k.log, m.Name)
	if err == nil {
		err = k.run(m)
	}
	var r *refusal
	if errors.As(err, &r) {
		if !k.Foreign {
			k.violations = append(k.violations, m.Name+": "+r.Error())
		}
		return r.errno
	}
	return err
}

func (k *Kernel) run(m *Msg) error {
	if k.unplugged {
		if Destroys(m.Name) {
			return nil
		}
		return unix.EIO
	}
	if errno, ok := k.Refuse[m.Name]; ok {
		return errno
	}
	if k.Fail != nil {
		if errno := k.Fail(m.Name); errno != 0 {
			return errno
		}
	}
	if k.count == k.FailAt {
		return k.FailWith
	}
	if m.Method.Object == uapi.MLX5_IB_OBJECT_DEVX {
		return unix.EINVAL // as for a context without a user of DevX
	}
	if h, ok := handlers[m.Name]; ok {
		return h(k, m)
	}
	if h, ok := bnxtHandlers[m.Name]; ok {
		return h(k, m)
	}
	return refuse(unix.EOPNOTSUPP, "no handler: add it to objects.go")
}

// Destroys reports whether a command destroys an object. Such commands succeed after the removal of
// the device.
func Destroys(command string) bool {
	return strings.HasSuffix(command, ".DESTROY") || command == "DM.FREE"
}

// Write implements ioctl.Kernel. It always fails, as write(2) does after a change of credentials.
func (k *Kernel) Write([]byte) error { return unix.EACCES }
