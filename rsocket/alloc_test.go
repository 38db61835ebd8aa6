//go:build device && !race

package rsocket_test

import (
	"testing"

	"github.com/goverbs/goverbs/rsocket"
)

// TestDeviceNothingAllocated checks that Read and Write allocate nothing, on both sides together. It needs a
// device of the kernel: one in memory allocates.
func TestDeviceNothingAllocated(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	served := background(func() error {
		buf := make([]byte, 1<<17)
		for {
			n, err := p.server.Read(buf)
			if err != nil {
				return err
			}
			if _, err := p.server.Write(buf[:n]); err != nil {
				return err
			}
		}
	})
	b, got := make([]byte, 20000), make([]byte, 1<<17)
	exchange := func(n int) {
		_, err := p.client.Write(b[:n])
		check(t, err)
		for n > 0 {
			k, err := p.client.Read(got)
			check(t, err)
			n -= k
		}
	}
	for name, f := range map[string]func(){
		"1 byte":      func() { exchange(1) },
		"100 bytes":   func() { exchange(100) },
		"20000 bytes": func() { exchange(20000) },
	} {
		for range 100 {
			f()
		}
		if n := testing.AllocsPerRun(200, f); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	check(t, p.client.Close())
	<-served
}
