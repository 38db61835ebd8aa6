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

// PortSpace is the kind of service that an id is for: enum rdma_port_space.
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

// An ID is one end of a communication: struct rdma_cm_id. Its methods may be called
// concurrently. They do not wait for the peer: results arrive as events of the id's
// [EventChannel]. The methods of a [SyncID] wait.
type ID struct {
	// Context is for the caller. The library does not use it. The id of a connection
	// request has the Context of its listener, so set that before Listen.
	Context any

	ps     PortSpace
	qpType uverbs.QPType
	uid    uint64
	ticket *leak.Ticket

	// to is the destination of events: sync or events. While the id moves from one to
	// the other, events are collected in aside.
	to struct {
		sync.Mutex
		sync   *SyncID
		events *EventChannel
		moving bool
		aside  []*record
	}

	// The data path reads these without the lock. Sends are posted to sendQP, which is
	// nil once the connection has ended.
	qp     atomic.Pointer[uverbs.QP]
	sendQP atomic.Pointer[uverbs.QP]
	srq    atomic.Pointer[uverbs.SRQ]
	sendCQ atomic.Pointer[uverbs.CQ]
	recvCQ atomic.Pointer[uverbs.CQ]
	// The queues that the id has created. SendComp and RecvComp wait on them.
	ownSendCQ, ownRecvCQ atomic.Pointer[uverbs.CQ]

	// setup has the MRs that are created during the setup of a connection.
	setup atomic.Pointer[setupMRs]

	life      life
	requested bool // created for a connection request

	mu     sync.Mutex // held during commands: the kernel reuses the numbers of destroyed ids
	node   *node
	kernel uint32 // the kernel's number of the id

	// These are written with mu and seen held (see show) and read with either.
	seen     sync.Mutex
	dev      *device
	port     int
	pkey     uint16
	local    netip.AddrPort
	peer     netip.AddrPort
	localGID uverbs.GID
	peerGID  uverbs.GID
	pd       *uverbs.PD // of the QP, or of the device if there is no QP
	// The vendor options that the peer has sent.
	remoteECE ECE

	xrcd    *uverbs.XRCD // the device's, while the id uses it
	usesSRQ bool         // whether the QP has an SRQ
	single  bool         // whether the QP is for a single goroutine
	path    uverbs.PathConfig
	groups  map[*Membership]struct{}
	ah      *uverbs.AH // the address handle of a Group

	responderResources uint8 // negotiated by Connect or Accept
	initiatorDepth     uint8
	connectData        []byte // sent before the private data of Connect
	ece                eceState
}

// CreateID creates an id whose events are read from the channel: rdma_create_id(3). Its
// QP will be RC in PSTCP and PSIB, and UD otherwise. The errors are those of
// [EventChannel.CreateIDFor].
func (ch *EventChannel) CreateID(ps PortSpace) (*ID, error) {
	return ch.CreateIDFor(ps, ps.qpType())
}

// CreateIDFor is CreateID for a QP of another type, which only PSIB allows. It returns
// [uverbs.ErrInvalid] for an unknown port space or for another type in the other port
// spaces, [uverbs.ErrClosed] after Close of the channel, or what the kernel says.
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

// create creates the kernel's id.
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

// describe returns a name of the id for errors. The caller holds i.mu or i.seen.
func (i *ID) describe() string { return describe(i.peer, i.local) }

// name is describe for callers that do not hold i.mu.
func (i *ID) name() string {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.describe()
}

// show changes the values that accessors return. The caller holds i.mu.
func (i *ID) show(change func()) {
	i.seen.Lock()
	defer i.seen.Unlock()
	change()
}

// command issues a command of the id. explain may be nil. Otherwise it returns an
// explanation of the command's error, or "".
func (i *ID) command(op string, explain func(error) string, command func() error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() {
		return closed(op, i.describe())
	}
	err := command()
	detail := ""
	if err != nil && explain != nil {
		detail = explain(err)
	}
	return wrap(op, i.describe(), err, detail)
}

// explainEINVAL returns a function that explains EINVAL, which the kernel returns if
// the id is in the wrong state.
func explainEINVAL(text string) func(error) string {
	return func(err error) string {
		if errors.Is(err, unix.EINVAL) {
			return text
		}
		return ""
	}
}

// PortSpace returns the port space of the id.
func (i *ID) PortSpace() PortSpace { return i.ps }

// QPType returns the type of the id's QP, even if the QP has not been created yet.
func (i *ID) QPType() uverbs.QPType { return i.qpType }

// QP returns the id's QP. It is nil before CreateQP.
func (i *ID) QP() *uverbs.QP { return i.qp.Load() }

// SRQ returns the SRQ that CreateSRQ has created, or nil.
func (i *ID) SRQ() *uverbs.SRQ { return i.srq.Load() }

// SendCQ returns the completion queue of sends. It is nil before CreateQP.
func (i *ID) SendCQ() *uverbs.CQ { return i.sendCQ.Load() }

// RecvCQ returns the completion queue of receives. It is nil before CreateQP.
func (i *ID) RecvCQ() *uverbs.CQ { return i.recvCQ.Load() }

// PD returns the PD of the QP. If there is no QP, it returns the PD that the ids of the
// device share. It is nil until the id is bound to a device.
func (i *ID) PD() *uverbs.PD {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.pd
}

// Verbs returns the open device that the id is bound to: rdma_cm_id.verbs. Other ids
// share it, and the library closes it. Verbs returns nil before the id is bound and
// after Close.
func (i *ID) Verbs() *uverbs.Context {
	i.seen.Lock()
	defer i.seen.Unlock()
	if i.dev == nil || i.isClosed() {
		return nil
	}
	return i.dev.ctx
}

// Port returns the device's port, counted from 1. It is 0 until the id is bound to a
// device.
func (i *ID) Port() int {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.port
}

// LocalAddr returns the local address of the id: rdma_get_local_addr(3),
// rdma_get_src_port(3).
func (i *ID) LocalAddr() netip.AddrPort {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.local
}

// PeerAddr returns the address of the peer: rdma_get_peer_addr(3),
// rdma_get_dst_port(3).
func (i *ID) PeerAddr() netip.AddrPort {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.peer
}

// LocalGID returns the GID that the id sends from. It is zero until the address is
// resolved.
func (i *ID) LocalGID() uverbs.GID {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.localGID
}

// PeerGID returns the GID of the peer. It is zero until the address is resolved.
func (i *ID) PeerGID() uverbs.GID {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.peerGID
}

// PKey returns the partition key. It is 0 until the id is bound to a device.
func (i *ID) PKey() uint16 {
	i.seen.Lock()
	defer i.seen.Unlock()
	return i.pkey
}

// Close closes what the id has created and the id itself: rdma_destroy_ep(3). It leaves
// groups, then closes the QP, its completion queues and the SRQ. An established
// connection is ended, an open request is rejected, and a resolution is canceled. Close
// is idempotent. If something cannot be closed yet, the id stays open. Close returns
// [uverbs.ErrBusy] while other QPs use the id's queues, or what the kernel says.
//
// The caller must close the MRs on the id's PD. The device stays open as long as one of
// them exists.
func (i *ID) Close() error {
	i.mu.Lock()
	if i.isClosed() {
		i.mu.Unlock()
		return nil
	}
	if err := errors.Join(i.detachAll(), i.destroyQP(), i.destroyAH(), i.destroySRQ()); err != nil {
		i.mu.Unlock()
		return err
	}
	name := i.describe()
	i.life.end(phaseClosed, closed("wait on", name))
	i.show(func() { i.pd = nil })
	forget(i.uid)
	for m := range i.groups {
		forget(m.uid)
	}
	_, err := i.node.file.DestroyID(i.kernel)
	err = wrap("close", name, err, "")
	i.ticket.Done()
	i.node.drop()
	dev, s := i.dev, i.synced()
	i.mu.Unlock()

	if s != nil {
		err = errors.Join(err, s.shut())
	}
	if dev != nil {
		err = errors.Join(err, dev.release())
	}
	return err
}
