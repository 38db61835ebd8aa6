package cm

import (
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/rdmacm"
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

	dest destination // of events

	// The data path reads these without the lock. Sends are posted to sendQP, which
	// is nil once the connection has ended.
	qp     atomic.Pointer[uverbs.QP]
	sendQP atomic.Pointer[uverbs.QP]
	srq    atomic.Pointer[uverbs.SRQ]
	sendCQ atomic.Pointer[uverbs.CQ]
	recvCQ atomic.Pointer[uverbs.CQ]
	// The queues that the id has created. SendComp and RecvComp wait on them.
	ownSendCQ, ownRecvCQ atomic.Pointer[uverbs.CQ]
	endsCQ               atomic.Pointer[uverbs.CQ] // of verbs.EndWith

	// setup has the MRs that are created during the setup of a connection.
	setup atomic.Pointer[setupMRs]

	closed func() // called when the id has been closed

	connecting  rdmacm.Stop // on iWARP
	life        life
	fromRequest bool // created for a connection request

	mu       sync.Mutex // held during commands: the kernel reuses the numbers of destroyed ids
	node     *node
	kernelID uint32 // the kernel's number of the id

	// These are written with mu and attrMu held (see setAttrs) and read with either.
	attrMu   sync.Mutex
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

	xrcd            *uverbs.XRCD // the device's, while the id uses it
	usesSRQ         bool         // whether the QP has an SRQ
	singleGoroutine bool         // whether the QP is for a single goroutine
	path            uverbs.PathConfig
	groups          map[*Membership]struct{}
	ah              *uverbs.AH // the address handle of a Group

	responderResources uint8 // negotiated by Connect or Accept
	initiatorDepth     uint8
	connectData        []byte // sent before the private data of Connect
	ece                eceState
}

// eceState is an id's state of ECE, except what the peer has sent.
type eceState struct {
	local ECE  // what Connect offers and Accept replies
	set   bool // the caller has set local
	qp    ECE  // the options of the id's QP, zero if the provider has no ECE
}

func newID(ps PortSpace, typ uverbs.QPType) (*ID, error) {
	if usual := ps.qpType(); typ != usual && ps != PSIB {
		return nil, invalid("create id", ps.String(),
			"the QP is "+typ.String()+": ids of this port space have "+usual.String())
	}
	return &ID{ps: ps, qpType: typ}, nil
}

// create creates the kernel's id.
func (id *ID) create(n *node) error {
	if err := n.addRef("create id on"); err != nil {
		return err
	}
	id.node = n
	id.uid = register(id)
	var err error
	if id.kernelID, err = n.file.CreateID(id.uid, uint16(id.ps), uint8(id.qpType)); err != nil {
		unregister(id.uid)
		n.release()
		return wrap("create id", id.ps.String(), err, "")
	}
	id.ticket = leak.Track("cm", "id")
	return nil
}

// describe returns a name of the id for errors.
func describe(peer, local netip.AddrPort) string {
	switch {
	case peer.IsValid():
		return peer.String()
	case local.IsValid():
		return local.String()
	}
	return noName
}

// describe returns a name of the id for errors. The caller holds id.mu or id.attrMu.
func (id *ID) describe() string { return describe(id.peer, id.local) }

// name is describe for callers that do not hold id.mu.
func (id *ID) name() string {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.describe()
}

// setAttrs changes the values that accessors return. The caller holds id.mu.
func (id *ID) setAttrs(change func()) {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	change()
}

// whenClosed sets the function that is called when the id has been closed.
func (id *ID) whenClosed(f func()) {
	id.mu.Lock()
	defer id.mu.Unlock()
	id.closed = f
}

// peerHost is [record.peer] for the id of a request.
func (id *ID) peerHost() netip.Addr {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	if id.peer.IsValid() {
		return hostAddr(id.peer.Addr())
	}
	return hostAddr(netip.AddrFrom16(id.peerGID))
}

// isClosed reports whether Close has closed the id.
func (id *ID) isClosed() bool { return id.life.current() == phaseClosed }

// connected reports whether the id has a connection that has not ended.
func (id *ID) connected() bool {
	p := id.life.current()
	return p == phaseEstablished || p == phaseDisconnecting
}

// Err returns why the id cannot communicate any more, or nil if it can. It returns
// [ErrDisconnected] if either side has ended the connection, [uverbs.ErrDeviceGone]
// if the device was removed, the error of EventMulticastError if a [SyncID] has lost its
// membership in a group, and [uverbs.ErrClosed] if none of these happened before Close.
// On an [EventChannel], Err reports the end once Next has returned its event, and
// EventMulticastError does not end the id: it may be a member of other groups.
func (id *ID) Err() error { return id.life.err() }

// command issues a command of the id. explain may be nil. Otherwise it returns an
// explanation of the command's error, or "".
func (id *ID) command(op string, explain func(error) string, command func() error) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() {
		return closed(op, id.describe())
	}
	err := command()
	detail := ""
	if err != nil && explain != nil {
		detail = explain(err)
	}
	return id.wrap(op, id.describe(), err, detail)
}

// notBound is the explanation of an error that is due to an id without a device.
const notBound = "the id is not bound to a device: Bind it to a device's address, or resolve the peer's first"

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

// wrap is the function wrap for a command of the id. An EIO alone does not mean that
// the device is gone. The caller holds id.mu.
func (id *ID) wrap(op, object string, err error, detail string) error {
	err = wrap(op, object, err, detail)
	if e, ok := err.(*Error); ok && e.Errno == unix.EIO && e.Kind == nil && id.deviceGone() {
		e.Kind, e.Detail = uverbs.ErrDeviceGone, ""
	}
	return err
}

// deviceGone reports whether package uverbs finds the device of the id gone. A query of
// a port always succeeds on a working device. The caller holds id.mu.
func (id *ID) deviceGone() bool {
	if id.dev == nil || id.dev.ctx == nil {
		return false
	}
	_, err := id.dev.ctx.QueryPort(max(id.port, 1))
	return errors.Is(err, uverbs.ErrDeviceGone)
}

// PortSpace returns the port space of the id.
func (id *ID) PortSpace() PortSpace { return id.ps }

// QPType returns the type of the id's QP, even if the QP has not been created yet.
func (id *ID) QPType() uverbs.QPType { return id.qpType }

// QP returns the id's QP. It is nil before CreateQP.
func (id *ID) QP() *uverbs.QP { return id.qp.Load() }

// SRQ returns the SRQ that CreateSRQ has created, or nil.
func (id *ID) SRQ() *uverbs.SRQ { return id.srq.Load() }

// SendCQ returns the completion queue of sends. It is nil before CreateQP.
func (id *ID) SendCQ() *uverbs.CQ { return id.sendCQ.Load() }

// RecvCQ returns the completion queue of receives. It is nil before CreateQP.
func (id *ID) RecvCQ() *uverbs.CQ { return id.recvCQ.Load() }

// PD returns the PD of the QP. If there is no QP, it returns the PD that the ids of
// the device share. It is nil until the id is bound to a device.
func (id *ID) PD() *uverbs.PD {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.pd
}

// Verbs returns the open device that the id is bound to: rdma_cm_id.verbs. Other ids
// share it, and the library closes it. Verbs returns nil before the id is bound and
// after Close.
func (id *ID) Verbs() *uverbs.Context {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	if id.dev == nil || id.isClosed() {
		return nil
	}
	return id.dev.ctx
}

// Port returns the device's port, counted from 1. It is 0 until the id is bound to a
// device.
func (id *ID) Port() int {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.port
}

// LocalAddr returns the local address of the id: rdma_get_local_addr(3),
// rdma_get_src_port(3).
func (id *ID) LocalAddr() netip.AddrPort {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.local
}

// RemoteAddr returns the address of the peer, as in package net: rdma_get_peer_addr(3),
// rdma_get_dst_port(3).
func (id *ID) RemoteAddr() netip.AddrPort {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.peer
}

// LocalGID returns the GID that the id sends from. It is zero until the address is
// resolved.
func (id *ID) LocalGID() uverbs.GID {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.localGID
}

// RemoteGID returns the GID of the peer. It is zero until the address is resolved.
func (id *ID) RemoteGID() uverbs.GID {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.peerGID
}

// PKey returns the partition key. It is 0 until the id is bound to a device.
func (id *ID) PKey() uint16 {
	id.attrMu.Lock()
	defer id.attrMu.Unlock()
	return id.pkey
}
