package verbstest_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/providertest"
	"github.com/goverbs/goverbs/verbstest"
)

// TestConformance runs the suite for providers on machines in memory, through the public API.
func TestConformance(t *testing.T) {
	on := func(device func(*testing.T, string) *providertest.Rig) func(*testing.T) *providertest.Rig {
		return func(t *testing.T) *providertest.Rig {
			m := verbstest.New(t)
			if strings.HasSuffix(t.Name(), "/Failed") { // its requests have a wrong key
				machine.Current().(interface{ Ignore(rule string) }).Ignore("key")
			}
			r := device(t, m.Device())
			r.Work = func() {} // the device, which allocates, works during posts
			r.ResizeSRQ = nil  // mlx5 does not
			return r
		}
	}
	t.Run("RC", func(t *testing.T) { providertest.Run(t, on(providertest.Device)) })
	t.Run("SRQ", func(t *testing.T) { providertest.RunSRQ(t, on(providertest.DeviceSRQ)) })
	t.Run("UC", func(t *testing.T) { providertest.RunUC(t, on(providertest.DeviceUC)) })
	t.Run("UD", func(t *testing.T) { providertest.RunUD(t, on(providertest.DeviceUD)) })
}
