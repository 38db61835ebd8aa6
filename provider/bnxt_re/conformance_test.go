package bnxt_re_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakebnxt"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	_ "github.com/goverbs/goverbs/provider/bnxt_re"
)

// models are the configurations of the device that change what the provider writes.
var models = map[string]fakebnxt.Config{
	"P5":                   fakebnxt.P5,
	"P5, old driver":       {Chip: fakebnxt.Thor, Pow2: true},
	"P5, table by message": {Chip: fakebnxt.Thor, MSN: true},
	"P7":                   fakebnxt.P7,
}

// each runs a test on each model.
func each(t *testing.T, run func(t *testing.T, cfg fakebnxt.Config)) {
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) { run(t, cfg) })
	}
}

// The suite that every provider passes.
func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, cfg fakebnxt.Config) {
		open := func(rig func(*testing.T, string) *providertest.Rig) func(*testing.T) *providertest.Rig {
			return func(t *testing.T) *providertest.Rig {
				r := rig(t, fakebnxt.New(t, 1, cfg).Device(0).Name())
				r.Work = func() {} // the device runs in this process, and allocates
				r.ResizeSRQ = nil
				return r
			}
		}
		t.Run("RC", func(t *testing.T) { providertest.Run(t, open(providertest.Device)) })
		t.Run("UD", func(t *testing.T) { providertest.RunUD(t, open(providertest.DeviceUD)) })
		t.Run("SRQ", func(t *testing.T) { providertest.RunSRQ(t, open(providertest.DeviceSRQ)) })
	})
}
