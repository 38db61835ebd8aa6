//go:build device && !race

package valkey_test

import (
	"io"
	"testing"

	"github.com/goverbs/goverbs/valkeyrdma"
)

// Read and Write allocate nothing. A device in memory would.
func TestNothingAllocated(t *testing.T) {
	r := start(t)
	c, err := valkeyrdma.DialContext(limit(t), r.addr)
	check(t, err)
	ping, pong := []byte("PING\r\n"), []byte("+PONG\r\n")
	exchange := func() {
		if _, err := c.Write(ping); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(c, pong); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		exchange()
	}
	if n := testing.AllocsPerRun(200, exchange); n > 0 {
		t.Errorf("%v allocations", n)
	}
	check(t, c.Close())
}
