package cm

import (
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// PortSpace says what kind of service an id is for: enum rdma_port_space.
type PortSpace uint16

// The port spaces of rdma_create_id(3).
const (
	PSIPoIB PortSpace = 0x0002 // multicast with IPoIB: UD
	PSTCP   PortSpace = 0x0106 // connected, reliable: RC
	PSUDP   PortSpace = 0x0111 // datagrams: UD
	PSIB    PortSpace = 0x013f // any service, named by [IBAddr]
)

func (p PortSpace) String() string {
	switch p {
	case PSIPoIB:
		return "IPoIB"
	case PSTCP:
		return "TCP"
	case PSUDP:
		return "UDP"
	case PSIB:
		return "IB"
	}
	return "port space " + strconv.Itoa(int(p))
}

func (p PortSpace) qpType() uverbs.QPType {
	switch p {
	case PSUDP, PSIPoIB:
		return uverbs.UD
	}
	return uverbs.RC
}

// An ID is one end of a communication: struct rdma_cm_id. Its methods may be
// called from any number of goroutines. None of them waits for the peer: the
// answers come as events of the id's [EventChannel]. A [SyncID] waits.
type ID struct {
	// Context is the program's own: the library does not look at it. The id of
	// a connection request gets its listener's, so set that before Listen.
	Context any

	ps     PortSpace
	qpType uverbs.QPType
	uid    uint64
	ticket *leak.Ticket

	// to is where events go: to one of the two, or while the id moves from one
	// to another, aside.
	to struct {
		sync.Mutex
		sync   *SyncID
		events *EventChannel
		moving bool
		aside  []*record
	}

	// The hot path reads these without the lock.
	qp     atomic.Pointer[uverbs.QP]
	srq    atomic.Pointer[uverbs.SRQ]
	sendCQ atomic.Pointer[uverbs.CQ]
	recvCQ atomic.Pointer[uverbs.CQ]
	// Those that the id made, and SendComp and RecvComp wait on.
	ownSendCQ, ownRecvCQ atomic.Pointer[uverbs.CQ]

	mu        sync.Mutex // held by every command: the kernel gives numbers of destroyed ids to new ones
	closed    bool
	listening bool
	requested bool // made by a connection request
	connected bool
	over      error // why the connection has ended
	failed    bool  // the handshake failed on this side: what the peer says of it is no news
	node      *node
	kernel    uint32 // the kernel's number

	dev      *device
	port     int
	pkey     uint16
	local    netip.AddrPort
	peer     netip.AddrPort
	localGID uverbs.GID
	peerGID  uverbs.GID

	pd      *uverbs.PD   // of the QP; the device's before there is one
	xrcd    *uverbs.XRCD // the device's, which the id has a share of
	usesSRQ bool         // the QP
	single  bool         // the QP belongs to one goroutine
	groups  map[*Membership]struct{}
	ah      *uverbs.AH // of a Group

	responderResources uint8 // what connect or accept came to
	initiatorDepth     uint8
	connectData        []byte // goes before the private data of Connect
	localECE           ECE
	remoteECE          ECE
}

// CreateID makes an id whose events come through the channel:
// rdma_create_id(3). Its QP will be RC in PSTCP and PSIB, UD otherwise. The
// errors are those of [EventChannel.CreateIDFor].
func (ch *EventChannel) CreateID(ps PortSpace) (*ID, error) {
	return ch.CreateIDFor(ps, ps.qpType())
}

// CreateIDFor is CreateID for a QP of another type than the usual one, in PSIB.
// [uverbs.ErrInvalid] for a port space that there is not, or another type in
// the others; [uverbs.ErrClosed] after Close of the channel; or what the kernel
// says.
func (ch *EventChannel) CreateIDFor(ps PortSpace, typ uverbs.QPType) (*ID, error) {
	i, err := newID(ps, typ)
	if err != nil {
		return nil, err
	}
	i.to.events = ch
	if err := i.create(&ch.node); err != nil {
		return nil, err
	}
	return i, nil
}

func newID(ps PortSpace, typ uverbs.QPType) (*ID, error) {
	if usual := ps.qpType(); typ != usual && ps != PSIB {
		return nil, invalid("create id", ps.String(), "the QP is "+typ.String()+": ids of this port space have "+usual.String())
	}
	return &ID{ps: ps, qpType: typ}, nil
}

// create makes the kernel's id.
func (i *ID) create(n *node) error {
	if err := n.hold(); err != nil {
		return err
	}
	i.node = n
	i.uid = enroll(i)
	var err error
	if i.kernel, err = n.file.CreateID(i.uid, uint16(i.ps), uint8(i.qpType)); err != nil {
		forget(i.uid)
		n.drop()
		return wrap("create id", i.ps.String(), err, "")
	}
	i.ticket = leak.Track("cm", "id")
	return nil
}

// describe names the id in errors. The caller holds i.mu.
func (i *ID) describe() string { return describe(i.peer, i.local) }

// name is describe for those who do not hold i.mu.
func (i *ID) name() string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.describe()
}

// command runs a command of the id. explain says what an error means, where it
// is known; it may be nil.
func (i *ID) command(op string, explain func(error) string, command func() error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed {
		return closed(op, i.describe())
	}
	err := command()
	detail := ""
	if err != nil && explain != nil {
		detail = explain(err)
	}
	return wrap(op, i.describe(), err, detail)
}

// explainEINVAL explains the errno with which the kernel answers what does not
// fit the id's state.
func explainEINVAL(text string) func(error) string {
	return func(err error) string {
		if errors.Is(err, unix.EINVAL) {
			return text
		}
		return ""
	}
}

// PortSpace returns the port space that the id was made in.
func (i *ID) PortSpace() PortSpace { return i.ps }

// QPType returns the type that the id's QP has, or will have.
func (i *ID) QPType() uverbs.QPType { return i.qpType }

// QP returns the id's QP, nil before CreateQP.
func (i *ID) QP() *uverbs.QP { return i.qp.Load() }

// SRQ returns what CreateSRQ made, or nil.
func (i *ID) SRQ() *uverbs.SRQ { return i.srq.Load() }

// SendCQ returns where completions of sends go, nil before CreateQP.
func (i *ID) SendCQ() *uverbs.CQ { return i.sendCQ.Load() }

// RecvCQ returns where completions of receives go, nil before CreateQP.
func (i *ID) RecvCQ() *uverbs.CQ { return i.recvCQ.Load() }

// PD returns the PD of the QP, or before there is one the PD that ids of the
// device share. It is nil until the id is bound to a device.
func (i *ID) PD() *uverbs.PD {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pd
}

// Verbs returns the open device that the id is bound to, which it shares with
// other ids, and nil before, and after Close: rdma_cm_id.verbs. The library
// closes it.
func (i *ID) Verbs() *uverbs.Context {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.dev == nil || i.closed {
		return nil
	}
	return i.dev.ctx
}

// Port returns the device's port, counted from 1, and 0 until the id is bound
// to a device.
func (i *ID) Port() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.port
}

// LocalAddr returns the id's address: rdma_get_local_addr(3),
// rdma_get_src_port(3).
func (i *ID) LocalAddr() netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.local
}

// PeerAddr returns the address of the other side: rdma_get_peer_addr(3),
// rdma_get_dst_port(3).
func (i *ID) PeerAddr() netip.AddrPort {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.peer
}

// LocalGID returns the GID that the id sends from, once its address is
// resolved.
func (i *ID) LocalGID() uverbs.GID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.localGID
}

// PeerGID returns the GID of the other side, once its address is resolved.
func (i *ID) PeerGID() uverbs.GID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.peerGID
}

// PKey returns the partition key, once the id is bound to a device.
func (i *ID) PKey() uint16 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pkey
}

// Close ends the id and all that it made: QP, completion queues, SRQ and
// memberships, in that order, then the id itself: rdma_destroy_ep(3). A
// connection that stands is ended, a request that was not answered is rejected,
// what is being resolved is cancelled. Close is idempotent; what cannot be
// closed yet leaves the id open. It answers [uverbs.ErrBusy] while QPs of
// others use what it made, or what the kernel says.
//
// MRs that were made on the id's PD are the program's to close. As long as one
// lives, the device stays open.
func (i *ID) Close() error {
	i.mu.Lock()
	if i.closed {
		i.mu.Unlock()
		return nil
	}
	if err := errors.Join(i.detachAll(), i.destroyQP(), i.destroyAH(), i.destroySRQ()); err != nil {
		i.mu.Unlock()
		return err
	}
	i.closed, i.pd = true, nil
	forget(i.uid)
	for m := range i.groups {
		forget(m.uid)
	}
	name := i.describe()
	_, err := i.node.file.DestroyID(i.kernel)
	err = wrap("close", name, err, "")
	i.ticket.Done()
	i.node.drop()
	dev, s := i.dev, i.synced()
	i.mu.Unlock()

	if s != nil {
		err = errors.Join(err, s.shut(name))
	}
	if dev != nil {
		err = errors.Join(err, dev.release())
	}
	return err
}
