//go:build vm

package bnxt_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/testbed/cshim"
)

// C's programs on librdmacm work on the device.
func TestCMPrograms(t *testing.T) {
	for name, cfg := range models {
		for _, g := range cshim.CMGames {
			if g.Program == "rdma_xclient" {
				continue // the device has no XRC
			}
			t.Run(name+"/"+g.Program, func(t *testing.T) {
				h := on(t, fakebnxt.New(t, 1, cfg).Device(0))
				cshim.PlayCM(t, g, fakedev.Addr.String(), h, h)
			})
		}
	}
}

// C's rdma_client and rdma_server talk with this library's cm, on one device.
func TestWithGo(t *testing.T) {
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) {
			h := on(t, fakebnxt.New(t, 1, cfg).Device(0))
			run := func(f func()) { f() }
			t.Run("server in Go", func(t *testing.T) { cshim.PlayGoServer(t, run, fakedev.Addr.String(), h) })
			t.Run("client in Go", func(t *testing.T) { cshim.PlayGoClient(t, run, fakedev.Addr.String(), h) })
		})
	}
}
