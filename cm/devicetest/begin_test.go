package devicetest

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// inMemory reports whether the tests run on machines in memory: no device is named.
var inMemory = os.Getenv("GOVERBS_DEVICE") == ""

// of returns a property of the guests' device, or of machines in memory.
func of(kernel, memory string) string {
	if inMemory {
		return memory
	}
	return kernel
}

// kernelOnly has the tests that machines in memory cannot run, with the reasons.
var kernelOnly = map[string]string{
	"TestDeviceList":         "a machine in memory has one device, and the test needs two",
	"TestDeviceBrokenDevice": "it renames a device node, and machines in memory have no nodes",
	"TestDeviceGetAddrInfo":  "it mounts a file over /etc/hosts, which needs privileges",
	"TestDeviceHostNames":    "it mounts a file over /etc/hosts, which needs privileges",
}

// ethernetOnly has the tests that machines in memory run on Ethernet only, with the reasons.
var ethernetOnly = map[string]string{
	"TestDeviceZone":          "it looks for the link-local address in the GID table, which has none on InfiniBand",
	"TestDeviceNoSuchAddress": "on InfiniBand, as opposed to RoCE, loopback addresses have a route",
	"TestDevicePortSpaces":    "it checks that Ethernet devices refuse IPoIB",
	"TestDeviceTOS":           "paths within a subnet have no GRH, and so no traffic class",
}

// notIWARP has the tests of what iWARP does not have, with the reasons. Connections of iWARP are TCP connections.
var notIWARP = map[string]string{
	"TestDeviceECE":             "MPA, its handshake, carries no vendor options",
	"TestDevicePath":            "its QPs have no address vector",
	"TestDeviceTOS":             "its QPs have no address vector",
	"TestDeviceAckTimeout":      "TCP has its own timers",
	"TestDeviceSetPaths":        "its routes have no path records",
	"TestDeviceIBAddresses":     "its devices have no GIDs",
	"TestDeviceAcceptWithdrawn": "its kernel counts no messages, so that the withdrawal cannot be waited for",
	"TestDeviceFlood":           "its requests name QPs that do not exist, which the kernel refuses",
	"TestDeviceNotify":          "rdma_notify does nothing there",
	"TestDeviceBacklog":         "its kernel counts no messages, so that the requests cannot be waited for",
	"TestDeviceCloseRaceSync":   "its kernel has crashed in siw_destroy_listen (Linux 6.12)",
	"TestDeviceBacklogSync":     "its kernel counts no messages, so that the requests cannot be waited for",
}

// rnic reports whether the device under test is one of iWARP.
var rnic = sync.OnceValue(func() bool {
	if inMemory {
		return false
	}
	all, err := uverbs.Devices()
	return err == nil && slices.ContainsFunc(all, func(d uverbs.Device) bool {
		return d.Name == rdmaDevice() && d.NodeType == uverbs.NodeRNIC
	})
})

// needUD skips a test if the device has no QPs for datagrams.
func needUD(t *testing.T) {
	t.Helper()
	i := must(cm.NewID(cm.PSUDP))(t)
	closing(t, i)
	check(t, i.Bind(at(deviceIP, 0)))
	err := i.CreateQP(nil, small())
	if errors.Is(err, uverbs.ErrNotSupported) {
		features.Missing(t, features.UD, err)
	}
	check(t, err)
}

func init() {
	if inMemory {
		features.UseMemory()
	}
}

// begin puts a test on a machine in memory, unless a device is named.
func begin(t *testing.T) {
	t.Helper()
	if !inMemory {
		if why, ok := notIWARP[t.Name()]; ok && rnic() {
			t.Skip("not on iWARP: " + why)
		}
		return
	}
	if why, ok := kernelOnly[t.Name()]; ok {
		t.Skip("only on a kernel: " + why)
	}
	if why, ok := ethernetOnly[t.Name()]; ok && features.InfiniBand() {
		t.Skip("not on InfiniBand: " + why)
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "TestDevice"), "/")
	verbstest.New(t, options()...).Allow(broken[name]...)
}

// broken has the rules of package verbstest that tests break on purpose, with what they do.
var broken = map[string][]verbstest.Rule{
	"CloseRaceConn":     {verbstest.ReceiveLate},                      // a peer sends while a connection is closed
	"CloseMRUnderRead":  {verbstest.LocalKey, verbstest.RemoteAccess}, // requests use a closed region
	"CloseMRUnderWrite": {verbstest.LocalKey, verbstest.RemoteAccess}, // the same
	"CloseMRUnderRecv":  {verbstest.LocalKey},                         // the same
	"NoReads":           {verbstest.BadRequest},                       // a READ is posted where none is permitted
	"OwnPD":             {verbstest.RemoteAccess},                     // a region is of another PD
	"PostSendEarly":     {verbstest.ReceiveLate},                      // the peer has no receive yet
	"RDMACM":            {verbstest.ReceiveLate},                      // the same
	"ReadWrite":         {verbstest.RemoteAccess},                     // an access is out of bounds
	"ReceiverNotReady":  {verbstest.ReceiveLate},                      // the peer has no receive
}

// memoryMachine is what tests need to know of a machine in memory.
type memoryMachine interface {
	// Resources returns the numbers of the kernel's objects by kind.
	Resources() map[string]uint64
	// Messages returns the number of connection messages of a kind that have arrived.
	Messages(kind string) int
	// Descriptors returns the number of descriptors that the machine uses itself.
	Descriptors() int
	// RemoveDevice removes the device.
	RemoveDevice()
}

// memory returns the machine in memory of the calling goroutine.
func memory() memoryMachine { return machine.Current().(memoryMachine) }

// options returns the options of machines in memory.
func options() []verbstest.Option {
	if features.InfiniBand() {
		return []verbstest.Option{verbstest.InfiniBand()}
	}
	return nil
}

// TestInfiniBand runs the tests on machines in memory with InfiniBand, too.
func TestInfiniBand(t *testing.T) {
	if !inMemory {
		t.Skip("the tests run on a device")
	}
	features.RunInfiniBand(t)
}

// onInfiniBand reports whether the device's port is on an InfiniBand subnet.
func onInfiniBand(t testing.TB, dev *uverbs.Context) bool {
	t.Helper()
	return must(dev.QueryPort(1))(t).LinkLayer == uverbs.LinkInfiniBand
}

// gidOf returns the GID of an address of the device.
func gidOf(t testing.TB, dev *uverbs.Context, ip netip.Addr) uverbs.GID {
	t.Helper()
	if onInfiniBand(t, dev) {
		return must(dev.GIDs(1))(t)[0].GID
	}
	return uverbs.GIDFromAddr(ip)
}
