package devicetest

import (
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/uverbs"
)

// TestDeviceParityMLX5CQ has the tests of tests/test_mlx5_cq.py of the size of completions, which is in Go the
// environment variable MLX5_CQE_SIZE, read when a device is opened, and of the messages in them.
func TestDeviceParityMLX5CQ(t *testing.T) {
	const variable = "MLX5_CQE_SIZE"
	messages := func(cqe int, sizes ...int) func(*testing.T) {
		return func(t *testing.T) {
			hasCQESize(t)
			t.Setenv(variable, strconv.Itoa(cqe))
			for _, n := range sizes { // some fit into a completion
				client, _ := newPlayers(t, setup{size: n, rounds: 10})
				traffic(t, client, uverbs.OpSend)
			}
		}
	}
	t.Run("test_dv_cq_traffic", func(t *testing.T) {
		hasCQESize(t)
		client, _ := newPlayers(t, setup{})
		traffic(t, client, uverbs.OpSend)
	})
	t.Run("test_dv_cq_cqe_size_128", messages(128, 60, 70, 140))
	t.Run("test_dv_cq_cqe_size_64", messages(64, 16, 60, 70))
	t.Run("test_dv_cq_cqe_size_with_bad_size", func(t *testing.T) {
		hasCQESize(t)
		t.Setenv(variable, "100")
		c, err := uverbs.Open(deviceName(t))
		if !errors.Is(err, uverbs.ErrInvalid) || !strings.Contains(err.Error(), variable) {
			t.Errorf("%s=100: %v", variable, err)
		}
		if err == nil {
			check(t, c.Close())
		}
	})
	t.Run("test_dv_cq_cqe_size_environment_var", func(t *testing.T) {
		hasCQESize(t)
		for _, size := range []string{"64", "128"} {
			t.Setenv(variable, size)
			newPlayers(t, setup{})
		}
	})
	t.Run("test_scatter_to_cqe_control_by_qp", func(t *testing.T) {
		hasCQESize(t)
		const access = uverbs.RemoteRead
		for _, on := range []string{"0", "1"} {
			t.Setenv("MLX5_SCATTER_TO_CQE", on)
			for _, s := range []mlx5.ScatterToCQE{mlx5.ScatterDisabled, mlx5.ScatterAllowed} {
				client, _ := newPlayers(t, setup{size: 16, rounds: 10, access: access, qpAccess: access,
					options: &mlx5.QPOptions{ScatterToCQE: s}})
				traffic(t, client, uverbs.OpSend)
				remoteTraffic(t, client, uverbs.OpRead)
			}
		}
	})
}

// hasCQESize skips the test if completions have one size.
func hasCQESize(t *testing.T) {
	t.Helper()
	if kernelRings(openDevice(t)) {
		features.Missing(t, features.CQESize, errors.New("completions are structs of the kernel"))
	}
}
