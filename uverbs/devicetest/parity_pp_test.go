package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityPP has the test of tests/test_mlx5_pp.py: entries of the table of rates.
func TestDeviceParityPP(t *testing.T) {
	t.Run("test_pp_alloc", func(t *testing.T) {
		dev := openDevice(t)
		first := allocPacing(t, dev, devx.PacingConfig{Rate: 100})
		dedicated := allocPacing(t, dev, devx.PacingConfig{Rate: 100, Dedicated: true})
		equal := allocPacing(t, dev, devx.PacingConfig{Rate: 100})
		if first.Index() == 0 || dedicated.Index() == first.Index() || equal.Index() != first.Index() {
			t.Errorf("the entries have the indexes %d, %d (dedicated) and %d", first.Index(), dedicated.Index(), equal.Index())
		}
		for _, p := range []*devx.Pacing{first, dedicated, equal, first} {
			check(t, p.Close())
		}
		if p, err := devx.AllocPacing(dev, devx.PacingConfig{}); !errors.Is(err, uverbs.ErrInvalid) {
			t.Errorf("an entry without a rate: %v, %v", p, err)
		}
	})
}

// allocPacing allocates an entry. It skips the test if the device has no packet pacing.
func allocPacing(t testing.TB, dev *uverbs.Context, cfg devx.PacingConfig) *devx.Pacing {
	t.Helper()
	p, err := devx.AllocPacing(dev, cfg)
	if errors.Is(err, uverbs.ErrNotSupported) {
		feature := features.PacketPacing
		if must(dev.QueryPort(1))(t).LinkLayer == uverbs.LinkInfiniBand {
			feature = features.PacketPacingIB
		}
		features.Missing(t, feature, err)
	}
	check(t, err)
	return p
}
