package bnxt_re_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/conntest"
	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/internal/sim/fakedev"
)

// Packages cm, rdma and rsocket work on the device.
func TestConnections(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		fakebnxt.New(t, 1, cfg)
		conntest.Run(t, fakedev.Addr.String(), true)
	})
}
