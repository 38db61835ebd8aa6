package devicetest

import (
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/features"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/verbstest"
)

// inMemory reports whether the tests run on machines in memory: no device is named.
var inMemory = os.Getenv("GOVERBS_DEVICE") == ""

// of returns a property of the guests' device, or that of machines in memory.
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

func init() {
	if inMemory {
		features.UseMemory()
	}
}

// begin puts a test on a machine in memory, unless a device is named.
func begin(t *testing.T) {
	t.Helper()
	if !inMemory {
		return
	}
	if why, ok := kernelOnly[t.Name()]; ok {
		t.Skip("only on a kernel: " + why)
	}
	verbstest.New(t)
	if strings.HasPrefix(t.Name(), "TestDeviceCloseMRUnder") {
		memory().Ignore("key") // the device uses memory that is no longer registered
	}
}

// memoryMachine is what tests need to know of a machine in memory.
type memoryMachine interface {
	// Resources returns the numbers of the kernel's objects by kind.
	Resources() map[string]uint64
	// Messages returns the number of connection messages of a kind that have arrived.
	Messages(kind string) int
	// Descriptors returns the number of descriptors that the machine uses itself.
	Descriptors() int
	// Ignore permits programs to break a rule for adapters.
	Ignore(rule string)
	// RemoveDevice removes the device.
	RemoveDevice()
}

// memory returns the machine in memory of the calling goroutine.
func memory() memoryMachine { return machine.Current().(memoryMachine) }
