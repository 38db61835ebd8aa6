package uverbs

import (
	"math/bits"
	"strings"

	"github.com/goverbs/goverbs/internal/uapi"
)

// Access is a set of rights to registered memory, to a memory window, or through a QP:
// ibv_reg_mr(3), ibv_bind_mw(3), ibv_modify_qp(3). The process that registered the memory may
// always read it. The values are those of ibv_access_flags.
type Access uint32

// The rights. RemoteWrite and RemoteAtomic also need LocalWrite.
const (
	LocalWrite   Access = 1 << 0 // needed for receives and for the results of READs
	RemoteWrite  Access = 1 << 1
	RemoteRead   Access = 1 << 2
	RemoteAtomic Access = 1 << 3
	// MWBindAccess allows binding memory windows to the memory.
	MWBindAccess Access = 1 << 4
	// ZeroBased makes the addresses of a memory window offsets from its start. To register a
	// zero-based region, call [PD.RegMRIOVA] with address 0.
	ZeroBased Access = 1 << 5
	// OnDemand leaves the memory unpinned: the device faults pages in when it needs them. See
	// [DeviceAttr.ODP] and [PD.AdviseMR]. The rxe driver of Linux 7.2 ignores the offset within
	// a page and always copies from or to the start of the page. There a message must begin at
	// the start of a page and must not be longer than a packet.
	OnDemand Access = 1 << 6
	// HugeTLB, together with OnDemand, promises that all of the memory is in huge pages and
	// stays there.
	HugeTLB Access = 1 << 7
	// FlushGlobal and FlushPersistent allow peers to flush what they wrote.
	FlushGlobal     Access = 1 << 8
	FlushPersistent Access = 1 << 9
	// RelaxedOrdering allows the device to write data in another order than it arrived. It is a
	// hint: it is left out if the kernel does not know it.
	RelaxedOrdering Access = 1 << 20
)

// optionalAccess is the set of rights that are hints: a kernel that accepts them ignores those
// that its device does not have.
const optionalAccess Access = uapi.IB_UVERBS_ACCESS_OPTIONAL_RANGE

var accessNames = map[Access]string{LocalWrite: "LocalWrite", RemoteWrite: "RemoteWrite", RemoteRead: "RemoteRead",
	RemoteAtomic: "RemoteAtomic", MWBindAccess: "MWBindAccess", ZeroBased: "ZeroBased", OnDemand: "OnDemand",
	HugeTLB: "HugeTLB", FlushGlobal: "FlushGlobal", FlushPersistent: "FlushPersistent", RelaxedOrdering: "RelaxedOrdering"}

// String returns the names of the rights, joined by "|", or "0" if there are none.
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
