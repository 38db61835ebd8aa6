package irdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/conntest"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
	"github.com/goverbs/goverbs/internal/sim/fakeirdma"
)

// Packages cm, rdma and rsocket work on the device.
func TestConnections(t *testing.T) {
	each(t, func(t *testing.T, cfg fakeirdma.Config) {
		fakeirdma.New(t, 1, cfg)
		conntest.Run(t, fakedev.Addr.String(), false)
	})
}
