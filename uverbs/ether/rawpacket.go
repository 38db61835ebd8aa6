package ether

import "github.com/goverbs/goverbs/uverbs"

// IPCsum makes the device fill in the IPv4, TCP and UDP checksums of a raw packet:
// IBV_SEND_IP_CSUM. The post returns uverbs.ErrQPType on QPs of other types, and
// uverbs.ErrOpNotSupported if the device does not support it: see uverbs.DeviceRawIPCsum of
// uverbs.DeviceAttr.CapFlags.
const IPCsum uverbs.SendFlags = 1 << 4

// The flags of raw packet QPs, of ibv_create_qp_ex(3), for uverbs.QPConfig.CreateFlags.
const (
	QPScatterFCS         uverbs.QPCreateFlags = 1 << 8  // receives end with the frame's checksum, 4 bytes
	QPCVLANStripping     uverbs.QPCreateFlags = 1 << 9  // the VLAN tag of a received frame is in the WC: see CVLAN
	QPPCIWriteEndPadding uverbs.QPCreateFlags = 1 << 11 // writes to memory are padded to the end of a cache line
)

// Flags of completions of raw packets.
const (
	// WCIPCsumOK means that the frame is IPv4 and that its checksums, including that
	// of TCP or UDP, are correct.
	WCIPCsumOK uverbs.WCFlags = 1 << 2
	// WCWithCVLAN means that the VLAN tag was removed from the frame: see [CVLAN].
	// The C library has no such flag.
	WCWithCVLAN uverbs.WCFlags = 1 << 7
)

// CVLAN returns the VLAN tag that the device removed from a received raw packet: 3
// bits of priority, the CFI bit and 12 bits of identifier, as ibv_wc_read_cvlan(3)
// does. ok is false if it removed none. Devices remove the tag on QPs and WQs with
// the flag for CVLAN stripping.
func CVLAN(w *uverbs.WC) (tag uint16, ok bool) {
	if w.Flags&WCWithCVLAN == 0 {
		return 0, false
	}
	return w.SLID, true
}

// FlowTag returns the ID of the [FlowActionTag] of the flow that directed a raw
// packet to the QP or WQ, or 0 if there is none: ibv_wc_read_flow_tag(3). The
// result is meaningless for other completions.
func FlowTag(w *uverbs.WC) uint32 { return w.Imm }
