//go:build device

package irdma_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/providertest"
)

func TestDeviceConformance(t *testing.T) {
	name := os.Getenv("GOVERBS_DEVICE")
	if name == "" {
		t.Fatal("set GOVERBS_DEVICE to the device to test, irdma0 for instance")
	}
	lacks := func(r *providertest.Rig) *providertest.Rig {
		r.NoAtomics, r.NoReset = true, true
		return r
	}
	t.Run("RC", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) *providertest.Rig { return lacks(providertest.Device(t, name)) })
	})
	t.Run("UD", func(t *testing.T) {
		providertest.RunUD(t, func(t *testing.T) *providertest.Rig { return lacks(providertest.DeviceUD(t, name)) })
	})
}
