// Package features lists the features of each kernel's RDMA drivers, so that a
// test that finds a feature missing knows whether that is expected.
//
// Guests have GOVERBS_KERNEL and GOVERBS_DEVICE in their environment. A test
// that gets the error that a kernel or device lacks a feature calls Missing: it
// skips the test if the table agrees, and fails it if the table has the
// feature.
package features

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Environment variables for test binaries.
const (
	EnvKernel = "GOVERBS_KERNEL" // such as 6.12
	EnvDevice = "GOVERBS_DEVICE" // such as rxe0
)

// Features that differ between kernels and devices. Features of all kernels of
// the test bed are listed as well: their absence is a failure.
const (
	Usable         = "usable"       // Open accepts the device
	CopyOnFork     = "copy_on_fork" // of pinned pages
	RC             = "rc"
	UC             = "uc"
	UD             = "ud"
	Endpoint       = "endpoint" // QPs that programs connect, not rdma_cm alone
	SRQ            = "srq"
	Atomics        = "atomics"
	MW             = "mw"               // memory windows, types 1 and 2
	Flush          = "flush"            // RDMA FLUSH
	AtomicWrite    = "atomic_write"     // RDMA ATOMIC WRITE
	SQDrained      = "sq_drained_event" // IB_EVENT_SQ_DRAINED
	AtomicRecovery = "atomic_recovery"  // a responder that continues after a misaligned atomic
	ReregMR        = "rereg_mr"         // reregistration of a memory region
	ReregMemory    = "rereg_memory"     // to other memory
	ODP            = "odp"              // on-demand paging
	ODPOffset      = "odp_offset"       // in the middle of a page
	ODPImplicit    = "odp_implicit"     // of the whole address space
	LastWQEEvent   = "last_wqe_event"   // IB_EVENT_QP_LAST_WQE_REACHED
	UDShortRecv    = "ud_short_recv"    // a UD QP that survives a datagram too long for its receive
	CMWriteEvent   = "cm_write_event"   // rdma_write_cm_event: user events in a channel of rdma_cm
	CMServices     = "cm_services"      // rdma_resolve_addrinfo: services of a subnet administrator
	CMMulticast6   = "cm_multicast6"    // rdma_join_multicast of an IPv6 group
	Netns          = "netns-rxe"        // rxe devices in other network namespaces
	Disassociate   = "disassociate"     // removal of a device that is in use
	XRC            = "xrc"
	DC             = "dc"              // dynamically connected transport
	DCStreams      = "dc_streams"      // streams of a DCI
	DCStreamReset  = "dc_stream_reset" // reset of a failed one
	OutOfOrder     = "out_of_order"    // QPs whose packets may overtake others
	LAG            = "lag"             // QPs with ports of a LAG
	LAGIB          = "lag_ib"          // with InfiniBand
	PacketPacing   = "packet_pacing"   // rates of raw packets, by DevX
	PacketPacingIB = "packet_pacing_ib"
	RawPacket      = "raw_packet"
	RawRate        = "raw_rate"      // of raw packets
	RawPacketIB    = "raw_packet_ib" // on an InfiniBand port
	EthernetIB     = "ethernet_ib"   // IP flows and other Ethernet flows, on an InfiniBand port
	Clock          = "clock"         // of the device, for completion time stamps
	RingPages      = "ring_pages"    // rings with a page size chosen by the library
	ThreadDomains  = "thread_domains"
	NullMR         = "null_mr"
	Import         = "import"
	DeviceMemory   = "device_memory" // memory of the device for programs
	ImportDM       = "import_dm"     // device memory of another context
	MemoryOps      = "memory_ops"    // atomic operations on device memory
	DMABuf         = "dmabuf"
	UDMABuf        = "udmabuf"         // /dev/udmabuf: dma-bufs of a program's memory
	ReadOnlyFiles  = "read_only_files" // shared mappings of files opened for reading can be registered
	PortSpeed      = "port_speed"      // the speed of a port as one number
	Moderation     = "moderation"      // several completions per event
	RateLimit      = "rate_limit"      // of an RC QP
	SQD            = "sqd"             // the QP state SQD
	SRQResize      = "srq_resize"      // changing the size of an SRQ
	SRQFirstLimit  = "srq_first_limit" // the limit in the attributes of a new SRQ
	MWBindRight    = "mw_bind_right"   // windows are refused for memory without MWBindAccess
	MWKeyOrder     = "mw_key_order"    // windows are refused for a key that is not the next one
	RawWQE         = "raw_wqe"         // requests in the format of the device
	ReservedQPN    = "reserved_qpn"    // QP numbers that no QP has
	CQESize        = "cqe_size"        // a choice of the size of completions
	DevX           = "devx"            // commands of the device's firmware
	BlueFlameUARIB = "bf_uar_ib"       // pages for bursts for DevX, on an InfiniBand port
	MWHoldsMR      = "mw_holds_mr"     // an MR cannot be closed while a window is bound to it
)

// A rule is the first kernel version in which a driver has a feature.
type rule struct {
	driver, feature string
	since           version // zero: never
	why             string
}

// always is older than every kernel of the test bed.
var always = version{1, 0}

var never version

// table has the rules of rxe. Kernels that are not in the test bed are compared
// by version.
var table = []rule{
	{"rxe", Usable, version{6, 0}, "before 6.0 rxe retries a send without a receive for ever, in a system call"},
	{"rxe", CopyOnFork, version{5, 12}, "the kernel's, not the driver's: nldev reports it since 5.12"},
	{"rxe", RC, always, "since the driver exists (4.8)"},
	{"rxe", UC, always, "since the driver exists (4.8)"},
	{"rxe", UD, always, "since the driver exists (4.8)"},
	{"rxe", Endpoint, always, "since the driver exists (4.8)"},
	{"rxe", SRQ, always, "since the driver exists (4.8)"},
	{"rxe", Atomics, always, "since the driver exists (4.8)"},
	{"rxe", MW, version{5, 14}, "rxe_mw.c came with 5.14"},
	{"rxe", Flush, version{6, 2}, "rxe executes FLUSH since 6.2"},
	{"rxe", AtomicWrite, version{6, 2}, "rxe executes ATOMIC WRITE since 6.2, on 64-bit kernels"},
	{"rxe", SQDrained, always, "since the driver exists (4.8)"},
	{"rxe", AtomicRecovery, version{7, 2}, "rxe of 6.1 and 6.12 takes later requests for parts of it, even after RESET"},
	{"rxe", ReregMR, version{6, 12}, "of the bed's kernels 6.12 is the first whose rxe has rereg_user_mr"},
	{"rxe", ReregMemory, never, "rxe changes PD and access of an MR, not its memory"},
	{"rxe", LastWQEEvent, version{6, 12}, "of the bed's kernels 6.12 is the first whose rxe raises it"},
	{"rxe", UDShortRecv, version{6, 12}, "the rxe of 6.1 fails the receive and moves the QP to ERR"},
	{"rxe", ODP, version{7, 2}, "of the bed's kernels 7.2 is the first whose rxe has on-demand paging"},
	{"rxe", ODPOffset, never, "the rxe of 7.2 copies to and from the beginning of an on-demand page, whatever the offset"},
	{"rxe", ODPImplicit, never, "rxe supports on-demand paging only for ranges"},
	{"rxe", CMWriteEvent, version{7, 2}, "7.2 is the first of the bed's kernels that accepts events from programs"},
	{"rxe", CMServices, version{6, 18}, "rdma_cm resolves services since 6.18"},
	{"rxe", CMMulticast6, never, "rdma_cm joins no IPv6 groups over RoCE v2"},
	{"rxe", Netns, version{7, 0}, "before 7.x rxe sends only through sockets of the initial network namespace"},
	{"rxe", Disassociate, never, "rxe has no disassociate_ucontext: an unload waits for its users"},
	{"rxe", XRC, never, "rxe creates no XRC queue pairs"},
	{"rxe", DC, never, "dynamically connected transport is mlx5's"},
	{"rxe", DCStreams, never, "dynamically connected transport is mlx5's"},
	{"rxe", DCStreamReset, never, "dynamically connected transport is mlx5's"},
	{"rxe", OutOfOrder, never, "out-of-order QPs are mlx5's"},
	{"rxe", LAG, never, "rxe has one port"},
	{"rxe", RawRate, never, "rxe creates no raw packet queue pairs"},
	{"rxe", PacketPacing, never, "rxe creates no raw packet queue pairs"},
	{"rxe", Import, never, "rxe has no query_ucontext, so contexts are not shared"},
	{"rxe", NullMR, never, "rxe has no null key"},
	{"rxe", DeviceMemory, never, "rxe has no memory but the host's"},
	{"rxe", ImportDM, never, "rxe has no memory but the host's"},
	{"rxe", MemoryOps, never, "rxe has no memory but the host's"},
	{"rxe", ThreadDomains, never, "rxe's queues have no registers"},
	{"rxe", RingPages, never, "rxe's rings are the kernel's memory"},
	{"rxe", Clock, never, "rxe has no clock"},
	{"rxe", RawPacket, never, "rxe creates no raw packet queue pairs"},
	{"rxe", DMABuf, never, "rxe has no reg_user_mr_dmabuf"},
	{"rxe", UDMABuf, version{6, 12}, "the kernel's, not the driver's: Debian's 6.12 is the first with CONFIG_UDMABUF"},
	{"rxe", ReadOnlyFiles, version{6, 2}, "the kernel's, not the driver's: ib_umem_get pins for reading since 6.2"},
	{"rxe", PortSpeed, never, "rxe has no query_port_speed"},
	{"rxe", Moderation, never, "rxe has no modify_cq"},
	{"rxe", RateLimit, never, "rxe accepts only the standard attributes of a QP"},
	{"rxe", RawWQE, never, "rxe's requests are structs of the kernel"},
	{"rxe", ReservedQPN, never, "reserved QP numbers are mlx5's"},
	{"rxe", CQESize, never, "rxe's completions are structs of the kernel"},
	{"rxe", DevX, never, "rxe has no firmware"},
	{"rxe", SQD, always, "since the driver exists (4.8)"},
	{"rxe", SRQResize, always, "since the driver exists (4.8)"},
	{"rxe", SRQFirstLimit, always, "since the driver exists (4.8)"},
	{"rxe", MWBindRight, version{5, 14}, "rxe_mw.c came with 5.14"},
	{"rxe", MWKeyOrder, version{5, 14}, "rxe_mw.c came with 5.14"},
	{"rxe", MWHoldsMR, version{5, 14}, "rxe_mw.c came with 5.14"},
}

// Lookup reports whether a kernel's driver has a feature, and why. kernel is a
// version or a release ("6.12", "6.12.107+deb13-amd64"), device a driver or a
// device name ("rxe", "rxe0", "mlx5_0"). known is false if the table does not
// have the feature.
func Lookup(kernel, device, feature string) (offered bool, why string, known bool) {
	v, ok := parseVersion(kernel)
	if !ok {
		return false, fmt.Sprintf("%q is not a kernel version", kernel), false
	}
	driver := driverOf(device)
	for _, r := range slices.Concat(table, memoryTable, mlx5Table, siwTable) {
		if r.feature == feature && (r.driver == driver || driver == Memory && r.driver == "mlx5") {
			return r.since != never && !v.before(r.since), r.why, true
		}
	}
	return false, fmt.Sprintf("the table of package features has no feature %q of driver %q", feature, driver), false
}

// Here returns kernel and device of the guest in which the test runs, or those of machines in memory.
func Here() (kernel, device string, ok bool) {
	if inMemory.Load() {
		return MemoryKernel, Memory, true
	}
	kernel, device = os.Getenv(EnvKernel), os.Getenv(EnvDevice)
	return kernel, device, kernel != "" && device != ""
}

// Missing ends a test that found a feature missing, with the error that
// reported it. It skips the test if that is expected or not known (outside of
// the test bed), and fails it otherwise.
func Missing(t testing.TB, feature string, err error) {
	t.Helper()
	kernel, device, ok := Here()
	if !ok {
		t.Skipf("%s is missing: %v (no expectations: %s and %s are not set)", feature, err, EnvKernel, EnvDevice)
	}
	offered, why, known := Lookup(kernel, device, feature)
	switch {
	case !known:
		t.Fatalf("%s is missing on kernel %s, device %s: %v\n%s: add it", feature, kernel, device, err, why)
	case offered:
		t.Fatalf("%s is missing on kernel %s, device %s, which should have it (%s): %v", feature, kernel, device, why, err)
	}
	t.Skipf("kernel %s, device %s has no %s, as expected (%s): %v", kernel, device, feature, why, err)
}

// version is a kernel's major and minor number.
type version struct{ major, minor int }

func (v version) before(w version) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

func parseVersion(s string) (version, bool) {
	major, rest, _ := strings.Cut(s, ".")
	end := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if end >= 0 {
		rest = rest[:end]
	}
	x, err1 := strconv.Atoi(major)
	y, err2 := strconv.Atoi(rest)
	return version{x, y}, err1 == nil && err2 == nil
}

// driverOf gives the driver of a device name: rxe of rxe0, mlx5 of mlx5_0.
func driverOf(device string) string {
	if name, number, ok := strings.Cut(device, "_"); ok && strings.Trim(number, "0123456789") == "" {
		return name
	}
	if strings.HasPrefix(device, "rxe") || strings.HasPrefix(device, "siw") {
		return strings.TrimRight(device, "0123456789")
	}
	return device
}
