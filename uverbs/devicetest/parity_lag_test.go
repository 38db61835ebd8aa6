package devicetest

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityLAGAffinity has the tests of tests/test_mlx5_lag_affinity.py: ports of a LAG through which QPs send.
func TestDeviceParityLAGAffinity(t *testing.T) {
	t.Run("test_raw_modify_lag_port", func(t *testing.T) {
		p := newTap(t)
		qp, err := p.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RawPacket, SendCQ: p.cq, MaxSendWR: 1, MaxRecvWR: 1})
		hasRaw(t, p.dev, err)
		check(t, qp.Modify(uverbs.QPAttr{State: uverbs.StateInit, Port: 1}, uverbs.MaskState|uverbs.MaskPort))
		moveToOtherPort(t, p.dev, qp)
	})
	for name, kind := range map[string]uverbs.QPType{
		"test_rc_modify_lag_port": uverbs.RC, "test_ud_modify_lag_port": uverbs.UD,
	} {
		t.Run(name, func(t *testing.T) {
			client, server := newPlayers(t, setup{kind: kind})
			moveToOtherPort(t, client.dev, client.qps[0])
			moveToOtherPort(t, server.dev, server.qps[0])
			traffic(t, client, uverbs.OpSend)
		})
	}
}

// moveToOtherPort chooses the other port of the LAG for a QP. It skips the test if there is no LAG.
func moveToOtherPort(t testing.TB, dev *uverbs.Context, qp *uverbs.QP) {
	t.Helper()
	port, _, err := mlx5.QueryLAGPort(qp)
	if errors.Is(err, uverbs.ErrNotSupported) {
		feature := features.LAG
		if must(dev.QueryPort(1))(t).LinkLayer == uverbs.LinkInfiniBand {
			feature = features.LAGIB
		}
		features.Missing(t, feature, err)
	}
	check(t, err)
	other := 3 - port
	check(t, mlx5.ModifyLAGPort(qp, other))
	if port, active, err := mlx5.QueryLAGPort(qp); port != other || active < 1 || err != nil {
		t.Errorf("the QP has port %d, active %d: %v; want port %d", port, active, err, other)
	}
}
