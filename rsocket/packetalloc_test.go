//go:build device && !race

package rsocket_test

import (
	"testing"

	"github.com/goverbs/goverbs/rsocket"
)

// TestDevicePacketAllocs checks that reads and writes of datagrams allocate nothing. It needs a device of the kernel:
// one in memory allocates.
func TestDevicePacketAllocs(t *testing.T) {
	r := newPacketRig(t)
	a, b := r.both(t, rsocket.Config{})
	acquaint(t, a, b)
	d, buf, to := data(100), make([]byte, 200), addrOf(b)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := a.WriteToUDPAddrPort(d, to); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.ReadFromUDPAddrPort(buf); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations per datagram", n)
	}
}
