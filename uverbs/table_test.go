package uverbs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/driver"
	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/sim/ioctltest"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

// TestKernelValues checks constants whose values are passed to the kernel.
func TestKernelValues(t *testing.T) {
	for _, v := range []struct {
		name      string
		got, want uint64
	}{
		{"LocalWrite", uint64(LocalWrite), uapi.IB_UVERBS_ACCESS_LOCAL_WRITE},
		{"RemoteWrite", uint64(RemoteWrite), uapi.IB_UVERBS_ACCESS_REMOTE_WRITE},
		{"RemoteRead", uint64(RemoteRead), uapi.IB_UVERBS_ACCESS_REMOTE_READ},
		{"RemoteAtomic", uint64(RemoteAtomic), uapi.IB_UVERBS_ACCESS_REMOTE_ATOMIC},
		{"WCSend", uint64(WCSend), uapi.IB_UVERBS_WC_SEND},
		{"WCWrite", uint64(WCWrite), uapi.IB_UVERBS_WC_RDMA_WRITE},
		{"WCRead", uint64(WCRead), uapi.IB_UVERBS_WC_RDMA_READ},
		{"WCCompareSwap", uint64(WCCompareSwap), uapi.IB_UVERBS_WC_COMP_SWAP},
		{"WCFetchAdd", uint64(WCFetchAdd), uapi.IB_UVERBS_WC_FETCH_ADD},
		{"WCBindMW", uint64(WCBindMW), uapi.IB_UVERBS_WC_BIND_MW},
		{"WCLocalInv", uint64(WCLocalInv), uapi.IB_UVERBS_WC_LOCAL_INV},
		{"WCTSO", uint64(WCTSO), uapi.IB_UVERBS_WC_TSO},
		{"WCFlush", uint64(WCFlush), uapi.IB_UVERBS_WC_FLUSH},
		{"WCAtomicWrite", uint64(WCAtomicWrite), uapi.IB_UVERBS_WC_ATOMIC_WRITE},
		{"RC", uint64(RC), uapi.IB_UVERBS_QPT_RC},
		{"UD", uint64(UD), uapi.IB_UVERBS_QPT_UD},
		{"XRCSend", uint64(XRCSend), uapi.IB_UVERBS_QPT_XRC_INI},
		{"XRCRecv", uint64(XRCRecv), uapi.IB_UVERBS_QPT_XRC_TGT},
		{"XRCRecv for the kernel", XRCRecv.kernel(), uapi.IB_UVERBS_QPT_XRC_TGT},
		{"DCI for the kernel", DCI.kernel(), uapi.IB_UVERBS_QPT_DRIVER},
		{"DCT for the kernel", DCT.kernel(), uapi.IB_UVERBS_QPT_DRIVER},
		{"NodeCA", uint64(NodeCA), uapi.RDMA_NODE_IB_CA},
		{"NodeSwitch", uint64(NodeSwitch), uapi.RDMA_NODE_IB_SWITCH},
		{"NodeRouter", uint64(NodeRouter), uapi.RDMA_NODE_IB_ROUTER},
		{"NodeRNIC", uint64(NodeRNIC), uapi.RDMA_NODE_RNIC},
		{"NodeUSNIC", uint64(NodeUSNIC), uapi.RDMA_NODE_USNIC},
		{"NodeUSNICUDP", uint64(NodeUSNICUDP), uapi.RDMA_NODE_USNIC_UDP},
		{"NodeUnspecified", uint64(NodeUnspecified), uapi.RDMA_NODE_UNSPECIFIED},
		{"XRCDCreate", uint64(XRCDCreate), unix.O_CREAT}, {"XRCDExclusive", uint64(XRCDExclusive), unix.O_EXCL},
		{"gidEntrySize", gidEntrySize, uint64(ioctl.SizeOf[uapi.IbUverbsGidEntry]())},
		{"compEventSize", compEventSize, uint64(ioctl.SizeOf[uapi.IbUverbsCompEventDesc]())},
		{"asyncEventSize", asyncEventSize, uint64(ioctl.SizeOf[uapi.IbUverbsAsyncEventDesc]())},
		// Numbers of libibverbs that are in no kernel header.
		{"Fence", uint64(Fence), 1}, {"Signaled", uint64(Signaled), 2}, {"Solicited", uint64(Solicited), 4},
		{"WCRecv", uint64(WCRecv), 128}, {"WCRecvRDMAImm", uint64(WCRecvRDMAImm), 129},
		{"size of a WC", uint64(ioctl.SizeOf[WC]()), 48},
		{"size of an SGE", uint64(ioctl.SizeOf[SGE]()), 16},
		{"largest SGE", MaxMessage, 1 << 31},
		{"GRHLen", GRHLen, 40},
		{"SRQMaskMaxWR", uint64(SRQMaskMaxWR), 1}, {"SRQMaskLimit", uint64(SRQMaskLimit), 2},
	} {
		if v.got != v.want {
			t.Errorf("%s is %d, want %d", v.name, v.got, v.want)
		}
	}
}

// TestOperations compares the constants with the table of operations, whose opcodes are the kernel's.
func TestOperations(t *testing.T) {
	constants := map[string]uint8{"WRITE": uint8(OpWrite), "WRITE_IMM": uint8(OpWriteImm), "SEND": uint8(OpSend),
		"SEND_IMM": uint8(OpSendImm), "READ": uint8(OpRead), "COMPARE_SWAP": uint8(OpCompareSwap),
		"FETCH_ADD": uint8(OpFetchAdd), "LOCAL_INV": uint8(OpLocalInv), "BIND_MW": uint8(OpBindMW),
		"SEND_INV": uint8(OpSendInv), "TSO": uint8(OpTSO), "FLUSH": uint8(OpFlush), "ATOMIC_WRITE": uint8(OpAtomicWrite)}
	table := map[string]uint8{}
	for i, o := range driver.Operations {
		if o.Name != "" {
			table[o.Name] = uint8(i)
			if name := WCOpcode(o.Completion).String(); strings.HasPrefix(name, "opcode ") {
				t.Errorf("the completion of %s has no name", o.Name)
			}
		}
	}
	if !maps.Equal(constants, table) {
		t.Errorf("the constants are %v, and the table has %v", constants, table)
	}
}

// TestCapFlags compares the flags of devices with those of the kernel's header, and checks that CapFlags of a
// DeviceAttr has those of both words of the reply.
func TestCapFlags(t *testing.T) {
	for _, v := range [][2]uint64{
		{uint64(DeviceResizeMaxWR), uapi.IB_UVERBS_DEVICE_RESIZE_MAX_WR},
		{uint64(DeviceBadPKeyCntr), uapi.IB_UVERBS_DEVICE_BAD_PKEY_CNTR},
		{uint64(DeviceBadQKeyCntr), uapi.IB_UVERBS_DEVICE_BAD_QKEY_CNTR},
		{uint64(DeviceRawMulti), uapi.IB_UVERBS_DEVICE_RAW_MULTI},
		{uint64(DeviceAutoPathMig), uapi.IB_UVERBS_DEVICE_AUTO_PATH_MIG},
		{uint64(DeviceChangePhyPort), uapi.IB_UVERBS_DEVICE_CHANGE_PHY_PORT},
		{uint64(DeviceUDAVPortEnforce), uapi.IB_UVERBS_DEVICE_UD_AV_PORT_ENFORCE},
		{uint64(DeviceCurrQPStateMod), uapi.IB_UVERBS_DEVICE_CURR_QP_STATE_MOD},
		{uint64(DeviceShutdownPort), uapi.IB_UVERBS_DEVICE_SHUTDOWN_PORT},
		{uint64(DevicePortActiveEvent), uapi.IB_UVERBS_DEVICE_PORT_ACTIVE_EVENT},
		{uint64(DeviceSysImageGUID), uapi.IB_UVERBS_DEVICE_SYS_IMAGE_GUID},
		{uint64(DeviceRCRNRNAKGen), uapi.IB_UVERBS_DEVICE_RC_RNR_NAK_GEN},
		{uint64(DeviceSRQResize), uapi.IB_UVERBS_DEVICE_SRQ_RESIZE},
		{uint64(DeviceNNotifyCQ), uapi.IB_UVERBS_DEVICE_N_NOTIFY_CQ},
		{uint64(DeviceMemWindow), uapi.IB_UVERBS_DEVICE_MEM_WINDOW},
		{uint64(DeviceUDIPCsum), uapi.IB_UVERBS_DEVICE_UD_IP_CSUM}, {uint64(DeviceXRC), uapi.IB_UVERBS_DEVICE_XRC},
		{uint64(DeviceMemMgtExtensions), uapi.IB_UVERBS_DEVICE_MEM_MGT_EXTENSIONS},
		{uint64(DeviceMemWindowType2A), uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2A},
		{uint64(DeviceMemWindowType2B), uapi.IB_UVERBS_DEVICE_MEM_WINDOW_TYPE_2B},
		{uint64(DeviceRCIPCsum), uapi.IB_UVERBS_DEVICE_RC_IP_CSUM},
		{uint64(DeviceRawIPCsum), uapi.IB_UVERBS_DEVICE_RAW_IP_CSUM},
		{uint64(DeviceManagedFlowSteering), uapi.IB_UVERBS_DEVICE_MANAGED_FLOW_STEERING},
		{uint64(DeviceRawScatterFCS), uapi.IB_UVERBS_DEVICE_RAW_SCATTER_FCS},
		{uint64(DevicePCIWriteEndPadding), uapi.IB_UVERBS_DEVICE_PCI_WRITE_END_PADDING},
		{uint64(DeviceFlushGlobal), uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL},
		{uint64(DeviceFlushPersistent), uapi.IB_UVERBS_DEVICE_FLUSH_PERSISTENT},
		{uint64(DeviceAtomicWrite), uapi.IB_UVERBS_DEVICE_ATOMIC_WRITE},
	} {
		if v[0] != v[1] {
			t.Errorf("%#x, want %#x", v[0], v[1])
		}
	}
	r := newRig(t)
	r.k.Set(func() {
		r.k.Device.DeviceCapFlags = uapi.IB_UVERBS_DEVICE_XRC
		r.k.Extended.DeviceCapFlagsEx = uapi.IB_UVERBS_DEVICE_XRC | uapi.IB_UVERBS_DEVICE_FLUSH_GLOBAL
		r.k.Ports[0].PortCapFlags = uapi.IB_UVERBS_PCF_CM_SUP
	})
	if a := good(r.c.QueryDevice())(t); a.CapFlags != DeviceXRC|DeviceFlushGlobal {
		t.Errorf("the flags of the device are %#x", uint64(a.CapFlags))
	}
	r.k.Set(func() { r.k.Extended.DeviceCapFlagsEx = 0 }) // a kernel without the second word
	if a := good(r.c.QueryDevice())(t); a.CapFlags != DeviceXRC {
		t.Errorf("without the second word, the flags of the device are %#x", uint64(a.CapFlags))
	}
	if a := good(r.c.QueryPort(1))(t); a.CapFlags != uapi.IB_UVERBS_PCF_CM_SUP {
		t.Errorf("the flags of the port are %#x", uint32(a.CapFlags))
	}
}

// TestNames checks that each number has a different name, including numbers of newer kernels.
func TestNames(t *testing.T) {
	for what, name := range map[string]func(int) string{
		"event":      func(i int) string { return EventType(i).String() },
		"state":      func(i int) string { return QPState(i).String() },
		"opcode":     func(i int) string { return Opcode(i).String() },
		"completion": func(i int) string { return WCOpcode(i).String() },
		"status":     func(i int) string { return WCStatus(i).Error() },
		"GID type":   func(i int) string { return GIDType(i).String() },
		"port state": func(i int) string { return PortState(min(i, 6)).String() + strings.Repeat("?", max(0, i-6)) },
		"mask":       func(i int) string { return QPMask(1<<(i%32)).String() + strings.Repeat("?", i/32) },
		"QP type":    func(i int) string { return QPType(i).String() },
	} {
		seen := map[string]int{}
		for i := range 40 {
			s := name(i)
			if other, twice := seen[s]; twice || s == "" {
				t.Errorf("%s %d and %d are both %q", what, i, other, s)
			}
			seen[s] = i
		}
	}
	if got := EventSpeedChange.String(); got != "device speed change" {
		t.Errorf("the last event is %q", got)
	}
	if got := (MaskState | MaskDestQPN | 1<<31).String(); got != "State, DestQPN, bit 31" {
		t.Errorf("mask: %q", got)
	}
	for m, want := range map[MTU]int{0: 0, MTU256: 256, MTU4096: 4096, 6: 0, 255: 0} {
		if m.Bytes() != want {
			t.Errorf("MTU %d is %d bytes, want %d", m, m.Bytes(), want)
		}
	}
	for op, want := range map[WCOpcode]string{WCSend: "SEND", WCTSO: "TSO", WCAtomicWrite: "ATOMIC_WRITE",
		10: "opcode 10", WCRecv: "RECV", WCRecvRDMAImm: "RECV_RDMA_IMM", 130: "opcode 130", WCRawWQE: "RAW_WQE",
		137: "opcode 137"} {
		if op.String() != want {
			t.Errorf("the opcode of a completion %d is %q, want %q", uint8(op), op, want)
		}
	}
	if got := GUID(0x0002c90300a1b2c3).String(); got != "0002:c903:00a1:b2c3" {
		t.Errorf("GUID: %q", got)
	}
}

// TestTransitions checks, for every pair of states, that explainTransition finds an error exactly
// if Linux's table has one, and names the missing and the superfluous attributes.
func TestTransitions(t *testing.T) {
	var table bytes.Buffer
	for _, typ := range []QPType{RC, UC, UD, XRCSend, XRCRecv, DCI, DCT} {
		fmt.Fprintf(&table, "# %v\n\n", typ)
		testTransitions(t, typ, &table)
	}
	ioctltest.Golden(t, "transitions", table.String())
	if text := explainTransition(RC, StateRTS, StateReset, MaskMinRNRTimer); text != "" {
		t.Errorf("a mask without State stays in RTS: %q", text)
	}
}

func testTransitions(t *testing.T, typ QPType, table *bytes.Buffer) {
	t.Helper()
	const all = MaskDestQPN<<1 - 1
	for from := StateReset; from <= StateErr; from++ {
		for to := StateReset; to <= StateErr; to++ {
			tr := transitions[typ][[2]QPState{from, to}]
			masks := []QPMask{0, tr.required, tr.required | tr.optional, all}
			for bit := QPMask(1); bit <= MaskDestQPN; bit <<= 1 {
				masks = append(masks, tr.required|bit, tr.required&^bit)
			}
			for _, m := range masks {
				m |= MaskState
				text := explainTransition(typ, from, to, m)
				if ok := ioctltest.Allowed(uint8(typ), uint8(from), uint8(to), uint32(m)); ok != (text == "") {
					t.Errorf("%v: %v to %v with %v: Linux allows it: %v; explained: %q", typ, from, to, m, ok, text)
				}
			}
			if text := explainTransition(typ, from, to, MaskState); text != "" {
				fmt.Fprintln(table, text)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	addr := netip.MustParseAddr
	v4, v4b := GIDFromAddr(addr("192.0.2.1")), GIDFromAddr(addr("192.0.2.9"))
	v6, local := GIDFromAddr(addr("2001:db8::1")), GIDFromAddr(addr("fe80::1"))
	e := func(g GID, typ GIDType, index int) GIDEntry {
		return GIDEntry{GID: g, Type: typ, Index: index, Port: 1}
	}
	for _, tc := range []struct {
		name         string
		entry        GIDEntry
		peer, source string
		score        int
		reason       string
	}{
		{"RoCE v1", e(v4, GIDTypeRoCEv1, 0), "", "", -1, "RoCE v1"},
		{"RoCE v1, the source of the route", e(v4, GIDTypeRoCEv1, 0), "192.0.2.2", "192.0.2.1", -1, "RoCE v1"},
		{"InfiniBand", e(local, GIDTypeIB, 0), "", "", 2, "InfiniBand"},
		{"v4 to v6", e(v4, GIDTypeRoCEv2, 0), "2001:db8::2", "", -1, "other IP family"},
		{"v6 to v4", e(v6, GIDTypeRoCEv2, 0), "192.0.2.2", "", -1, "other IP family"},
		{"source of the route", e(v4, GIDTypeRoCEv2, 0), "192.0.2.2", "192.0.2.1", 4, "routing table"},
		{"another v4", e(v4b, GIDTypeRoCEv2, 0), "192.0.2.2", "192.0.2.1", 3, "IPv4"},
		{"v4, no peer", e(v4, GIDTypeRoCEv2, 0), "", "", 3, "IPv4"},
		{"v6, no peer", e(v6, GIDTypeRoCEv2, 0), "", "", 2, "IPv6"},
		{"link-local, no peer", e(local, GIDTypeRoCEv2, 0), "", "", 1, "link-local"},
		{"link-local to global", e(local, GIDTypeRoCEv2, 0), "2001:db8::2", "", 1, "link-local"},
		{"link-local to link-local", e(local, GIDTypeRoCEv2, 0), "fe80::2", "", 2, "IPv6"},
		{"index 256", e(v4, GIDTypeRoCEv2, 256), "", "", -1, "255"},
		{"another namespace", GIDEntry{GID: v4, Type: GIDTypeRoCEv2, IfIndex: 7}, "", "", -1, "namespace"},
		{"interface with a name", GIDEntry{GID: v4, Type: GIDTypeRoCEv2, IfIndex: 7, Netdev: "eth0"}, "", "", 3, "IPv4"},
	} {
		var peer, source netip.Addr
		if tc.peer != "" {
			peer = addr(tc.peer)
		}
		if tc.source != "" {
			source = addr(tc.source)
		}
		if score, reason := scoreGID(tc.entry, peer, source); score != tc.score || !strings.Contains(reason, tc.reason) {
			t.Errorf("%s: %d, %q; want %d, …%s…", tc.name, score, reason, tc.score, tc.reason)
		}
	}
}

// TestRankGIDs checks that GIDs are ranked by score, then by index, and that the best is selected.
func TestRankGIDs(t *testing.T) {
	r := newRig(t)
	entry := func(index int, typ uint32, a string) uapi.IbUverbsGidEntry {
		return uapi.IbUverbsGidEntry{Gid: netip.MustParseAddr(a).As16(), GidIndex: uint32(index), GidType: typ, PortNum: 1}
	}
	r.k.Set(func() {
		r.k.GIDs = []uapi.IbUverbsGidEntry{entry(0, 1, "fe80::1"), entry(1, 2, "fe80::1"), entry(2, 1, "127.0.0.1"),
			entry(3, 2, "192.0.2.9"), entry(4, 2, "127.0.0.1"), entry(5, 2, "192.0.2.7"), entry(6, 2, "2001:db8::1"),
			{GidIndex: 0, GidType: 2, PortNum: 2, Gid: netip.MustParseAddr("192.0.2.66").As16()}}
	})
	for peer, want := range map[string][]int{
		"":                 {3, 4, 5, 6, 1, 0, 2},
		"127.0.0.1":        {4, 3, 5, 0, 1, 2, 6},
		"::ffff:127.0.0.1": {4, 3, 5, 0, 1, 2, 6},
	} {
		var a netip.Addr
		if peer != "" {
			a = netip.MustParseAddr(peer)
		}
		choices := good(r.c.RankGIDs(0, a))(t)
		var got []int
		for _, c := range choices {
			got = append(got, c.Index)
		}
		if !slices.Equal(got, want) {
			t.Errorf("peer %q: order %v, want %v", peer, got, want)
		}
		if best := good(r.c.SelectGID(1, a))(t); best.Index != want[0] {
			t.Errorf("peer %q: GID %d is selected, want %d", peer, best.Index, want[0])
		}
	}
}

// TestHugeGIDTable checks that only a part of a GID table is requested if the table does not fit an
// attribute.
func TestHugeGIDTable(t *testing.T) {
	r := newRig(t)
	r.k.Set(func() { r.k.Ports[0].GidTblLen = 1 << 20 })
	if n := len(good(r.c.GIDs(1))(t)); n != len(r.k.GIDs) {
		t.Errorf("%d GIDs, want %d", n, len(r.k.GIDs))
	}
}

// TestErrorCause checks that errors.Is finds a cause that is not an errno.
func TestErrorCause(t *testing.T) {
	cause := errors.New("the provider's own")
	if err := (&Context{}).wrap("create CQ", "fake0", cause, ""); !errors.Is(err, cause) ||
		err.Error() != "uverbs: create CQ on fake0: the provider's own" {
		t.Errorf("%v", err)
	}
}
