package irdma_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeirdma"
	"github.com/goverbs/goverbs/internal/sim/providertest"
	_ "github.com/goverbs/goverbs/provider/irdma"
)

// models are the configurations of the device that change what the provider does.
var models = map[string]fakeirdma.Config{
	"E810":             fakeirdma.E810,
	"E810, old driver": {Generation: 2, Resize: true, Old: true},
	"E810, no resize":  {Generation: 2},
}

// each runs a test on each model.
func each(t *testing.T, run func(t *testing.T, cfg fakeirdma.Config)) {
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) { run(t, cfg) })
	}
}

// The suite that every provider passes.
func TestConformance(t *testing.T) {
	each(t, func(t *testing.T, cfg fakeirdma.Config) {
		open := func(rig func(*testing.T, string) *providertest.Rig) func(*testing.T) *providertest.Rig {
			return func(t *testing.T) *providertest.Rig {
				r := rig(t, fakeirdma.New(t, 1, cfg).Device(0).Name())
				r.Work = func() {} // the device runs in this process, and allocates
				r.NoAtomics, r.NoReset = true, true
				if !cfg.Resize {
					r.Resize = nil
				}
				return r
			}
		}
		t.Run("RC", func(t *testing.T) { providertest.Run(t, open(providertest.Device)) })
		t.Run("UD", func(t *testing.T) { providertest.RunUD(t, open(providertest.DeviceUD)) })
	})
}
