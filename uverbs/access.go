package uverbs

import (
	"math/bits"
	"strings"

	"github.com/goverbs/goverbs/internal/uapi"
)

// Access says what may be done to registered memory, to a memory window, or
// through a QP: ibv_reg_mr(3), ibv_bind_mw(3), ibv_modify_qp(3). The owner of
// memory may always read it. The values are those of ibv_access_flags.
type Access uint32

// The rights. RemoteWrite and RemoteAtomic need LocalWrite beside them.
const (
	LocalWrite   Access = 1 << 0 // receives, and what READs fetch, land here
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	// MWBindAccess lets memory windows be bound to the memory.
	MWBindAccess Access = 1 << 4
	// ZeroBased makes the addresses of a memory window offsets from its
	// beginning. Memory itself is zero-based when it is registered by
	// [PD.RegMRIOVA] at 0.
	ZeroBased Access = 1 << 5
	// OnDemand leaves the memory unpinned: the device asks for a page when it
	// needs it. See [DeviceAttr.ODP] and [PD.AdviseMR]. The rxe of Linux 7.2
	// copies to and from the beginning of a page, whatever the offset in it:
	// there a message must begin with a page and be no longer than a packet.
	OnDemand Access = 1 << 6
	// HugeTLB promises, beside OnDemand, that all of the memory lies in huge
	// pages and stays there.
	HugeTLB Access = 1 << 7
	// FlushGlobal and FlushPersistent let peers flush what they wrote.
	FlushGlobal     Access = 1 << 8
	FlushPersistent Access = 1 << 9
	// RelaxedOrdering lets the device write in another order than the network
	// delivered. It is a hint, left out where the kernel does not know it.
	RelaxedOrdering Access = 1 << 20
)

// optionalAccess are the rights that are hints: a kernel that takes them
// ignores those that its device does not have.
const optionalAccess Access = uapi.IB_UVERBS_ACCESS_OPTIONAL_RANGE

var accessNames = map[Access]string{LocalWrite: "LocalWrite", RemoteWrite: "RemoteWrite", RemoteRead: "RemoteRead",
	RemoteAtomic: "RemoteAtomic", MWBindAccess: "MWBindAccess", ZeroBased: "ZeroBased", OnDemand: "OnDemand",
	HugeTLB: "HugeTLB", FlushGlobal: "FlushGlobal", FlushPersistent: "FlushPersistent", RelaxedOrdering: "RelaxedOrdering"}

// String lists the rights, joined by "|"; no right is "0".
func (a Access) String() string {
	if a == 0 {
		return "0"
	}
	var names []string
	for rest := uint32(a); rest != 0; rest &= rest - 1 {
		bit := Access(1) << bits.TrailingZeros32(rest)
		name, known := accessNames[bit]
		if !known {
			name = "bit " + sitoa(bits.TrailingZeros32(rest))
		}
		names = append(names, name)
	}
	return strings.Join(names, "|")
}
