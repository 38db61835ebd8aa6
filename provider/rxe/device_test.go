//go:build device

package rxe

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/provider/providertest"
)

// deviceName is the rxe device that GOVERBS_DEVICE names.
func deviceName(t testing.TB) string {
	t.Helper()
	name := os.Getenv("GOVERBS_DEVICE")
	if name == "" {
		t.Fatal("set GOVERBS_DEVICE to the rxe device to test, rxe0 for instance")
	}
	return name
}

// ways runs f with each of the two ways to ring a doorbell.
func ways(f func(name string)) {
	was := preferWrite
	defer func() { preferWrite = was }()
	for _, preferWrite = range []bool{true, false} {
		f(map[bool]string{true: "write", false: "ioctl"}[preferWrite])
	}
}

func TestDeviceConformance(t *testing.T) {
	ways(func(way string) {
		t.Run(way, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) *providertest.Rig {
				return providertest.Device(t, deviceName(t))
			})
		})
	})
}
