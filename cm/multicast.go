package cm

import (
	"errors"
	"net/netip"
	"sync/atomic"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// JoinFlags are how to join a group: rdma_join_multicast_ex(3).
type JoinFlags uint16

// The flags of JoinMulticast.
const (
	JoinFull     JoinFlags = 0 // receive and send
	JoinSendOnly JoinFlags = 1 // send only
)

// A Membership is the membership of an id in a group. Its fields are valid after
// EventMulticastJoin.
type Membership struct {
	Group netip.Addr // the zero Addr if the group was given as an [IBAddr]

	id       *ID
	name     string // of the group
	flags    JoinFlags
	uid      uint64
	kernelID uint32 // the kernel's number
	hasLeft  bool
	attached bool
	joined   atomic.Bool // the pump reads it without the lock
	gid      uverbs.GID
	lid      uint16
}

// JoinMulticast joins a group: rdma_join_multicast(3), rdma_join_multicast_ex(3).
// EventMulticastJoin, which has the destination for sends, or EventMulticastError
// follows. The id must be bound to a device. Its QP is attached to the group unless
// flags is JoinSendOnly. With the unspecified address, an InfiniBand fabric chooses
// the group. JoinMulticast returns [uverbs.ErrInvalid] if the address is not a
// multicast address, or if the id is not bound or its port space has no groups,
// EADDRINUSE if the id has already joined the group, [uverbs.ErrNotSupported] for
// IPv6 groups on RoCE v2, [uverbs.ErrClosed] after Close, or what the kernel says.
func (id *ID) JoinMulticast(group netip.Addr, flags JoinFlags) (*Membership, error) {
	b, err := sockaddr(netip.AddrPortFrom(group, 0))
	if err != nil {
		return nil, err
	}
	if !group.IsMulticast() && !group.IsUnspecified() {
		return nil, invalid("join", group.String(), "it is not a multicast address")
	}
	return id.joinGroup(&Membership{Group: group, id: id, name: group.String(), flags: flags}, b)
}

// JoinMulticastIB is JoinMulticast for a group given by its GID. The errors are those
// of [ID.JoinMulticast].
func (id *ID) JoinMulticastIB(group IBAddr, flags JoinFlags) (*Membership, error) {
	return id.joinGroup(&Membership{id: id, name: group.GID.String(), flags: flags}, group.sockaddr())
}

func (id *ID) joinGroup(m *Membership, addr []byte) (*Membership, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	const op = "join"
	if id.isClosed() {
		return nil, closed(op, m.name)
	}
	m.uid = register(m)
	var err error
	m.kernelID, err = id.node.file.JoinMulticast(id.kernelID, m.uid, addr, uint16(m.flags))
	if err != nil {
		unregister(m.uid)
		return nil, id.wrap(op, m.name, err, explainJoin(err))
	}
	if id.groups == nil {
		id.groups = make(map[*Membership]struct{})
	}
	id.groups[m] = struct{}{}
	return m, nil
}

func explainJoin(err error) string {
	switch {
	case errors.Is(err, unix.EINVAL):
		return "groups are for ids of PSUDP and PSIPoIB that are bound to a device:" +
			" Bind to a device's address, or resolve the group's, first"
	case errors.Is(err, unix.EADDRINUSE):
		return "the id has joined the group before"
	case errors.Is(err, errNotSupp):
		return "RoCE v2 has no IPv6 groups: use an IPv4 group"
	}
	return ""
}

func (m *Membership) attach() error {
	qp := m.id.qp.Load()
	if qp == nil || m.flags == JoinSendOnly {
		return nil
	}
	if err := qp.AttachMcast(m.gid, m.lid); err != nil {
		return err
	}
	m.attached = true
	return nil
}

func (m *Membership) detach() error {
	if !m.attached {
		return nil
	}
	if qp := m.id.qp.Load(); qp != nil {
		if err := qp.DetachMcast(m.gid, m.lid); err != nil && !errors.Is(err, uverbs.ErrClosed) {
			return err
		}
	}
	m.attached = false
	return nil
}

// detachAll detaches the QP from all groups. The caller holds id.mu.
func (id *ID) detachAll() error {
	var errs []error
	for m := range id.groups {
		errs = append(errs, m.detach())
	}
	return errors.Join(errs...)
}

// Leave leaves the group: rdma_leave_multicast(3). It is idempotent. Closing the id
// leaves its groups too. An error is what the kernel says, and the id is still a
// member.
func (m *Membership) Leave() error {
	id := m.id
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() || m.hasLeft {
		return nil
	}
	if err := m.detach(); err != nil {
		return err
	}
	joined := m.joined.Swap(false) // from now on, the end of the membership does not end the id
	if _, err := id.node.file.LeaveMulticast(m.kernelID); err != nil {
		m.joined.Store(joined)
		return id.wrap("leave", m.name, err, "")
	}
	m.hasLeft = true
	unregister(m.uid)
	delete(id.groups, m)
	return nil
}
