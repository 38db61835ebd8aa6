package devicetest

import (
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	"github.com/goverbs/goverbs/verbstest"
)

// inMemory reports whether the tests run on machines in memory, and not on a device of the kernel.
func inMemory() bool { return os.Getenv(features.EnvDevice) == "" }

func TestMain(m *testing.M) {
	if inMemory() {
		features.UseMemory()
	}
	leaktest.Main(m)
}

// deviceName returns the name of the device under test. In memory, it puts the calling goroutine on
// a machine, unless it is on one. It skips tests and subtests that the list of differences has.
func deviceName(t testing.TB) string {
	t.Helper()
	if !inMemory() {
		return os.Getenv(features.EnvDevice)
	}
	for name := t.Name(); name != ""; {
		if why, ok := differences[strings.TrimPrefix(name, "TestDevice")]; ok {
			t.Skipf("not in memory: %s", why)
		}
		if why, ok := ethernetOnly[strings.TrimPrefix(name, "TestDevice")]; ok && features.InfiniBand() {
			t.Skipf("not on InfiniBand: %s", why)
		}
		name = name[:max(strings.LastIndexByte(name, '/'), 0)]
	}
	if m := machine.Current(); m != nil {
		devices, err := m.Devices()
		check(t, err)
		return devices[0].Name
	}
	m := verbstest.New(t, options()...)
	name, _, _ := strings.Cut(strings.TrimPrefix(t.Name(), "TestDevice"), "/")
	m.Allow(broken[name]...)
	return m.Device()
}

// options returns the options of machines in memory.
func options() []verbstest.Option {
	if features.InfiniBand() {
		return []verbstest.Option{verbstest.InfiniBand()}
	}
	return nil
}

// TestInfiniBand runs the tests on machines in memory with InfiniBand, too.
func TestInfiniBand(t *testing.T) {
	if !inMemory() {
		t.Skip("the tests run on a device")
	}
	features.RunInfiniBand(t)
}
