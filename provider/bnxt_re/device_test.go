//go:build device

package bnxt_re_test

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/providertest"
)

func TestDeviceConformance(t *testing.T) {
	name := os.Getenv("GOVERBS_DEVICE")
	if name == "" {
		t.Fatal("set GOVERBS_DEVICE to the device to test, bnxt_re0 for instance")
	}
	providertest.Run(t, func(t *testing.T) *providertest.Rig { return providertest.Device(t, name) })
	t.Run("SRQ", func(t *testing.T) {
		providertest.RunSRQ(t, func(t *testing.T) *providertest.Rig {
			r := providertest.DeviceSRQ(t, name)
			r.ResizeSRQ = nil // the device does not support it
			return r
		})
	})
	t.Run("UD", func(t *testing.T) {
		providertest.RunUD(t, func(t *testing.T) *providertest.Rig { return providertest.DeviceUD(t, name) })
	})
}
