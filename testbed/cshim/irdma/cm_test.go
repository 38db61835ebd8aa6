//go:build vm

package irdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/sim/fakeirdma"
	"github.com/goverbs/goverbs/testbed/cshim"
)

// Programs on librdmacm work on the device.
func TestCMPrograms(t *testing.T) {
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) {
			cshim.PlayCMOn(t, fakedev.Addr.String(), func(t *testing.T) *cshim.Host {
				return on(t, fakeirdma.New(t, 1, cfg).Device(0))
			})
		})
	}
}
