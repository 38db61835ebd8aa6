package verbstest_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/providertest"
	"github.com/goverbs/goverbs/verbstest"
)

// brokenBySuite has the rules that tests of the suite break on purpose, with what they do.
var brokenBySuite = map[string][]verbstest.Rule{
	"RC/Failed":  {verbstest.LocalKey}, // requests have a wrong key
	"SRQ/Failed": {verbstest.LocalKey},
	"UC/Failed":  {verbstest.LocalKey},
	"UD/Failed":  {verbstest.LocalKey},
	"RC/Reset":   {verbstest.ReceiveLate}, // a request must be outstanding when the QP is reset
	"UC/Lost":    {verbstest.ReceiveLate}, // a message is lost
}

// TestConformance runs the suite for providers on machines in memory, through the public API.
func TestConformance(t *testing.T) {
	t.Run("Ethernet", func(t *testing.T) { testConformance(t) })
	t.Run("InfiniBand", func(t *testing.T) { testConformance(t, verbstest.InfiniBand()) })
}

func testConformance(t *testing.T, options ...verbstest.Option) {
	t.Helper()
	on := func(device func(*testing.T, string) *providertest.Rig) func(*testing.T) *providertest.Rig {
		return func(t *testing.T) *providertest.Rig {
			m := verbstest.New(t, options...)
			m.Allow(brokenBySuite[strings.SplitN(t.Name(), "/", 3)[2]]...) // without the link layer
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
