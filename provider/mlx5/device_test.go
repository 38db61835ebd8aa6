//go:build device

package mlx5

import (
	"os"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/providertest"
)

// deviceName returns the device named by GOVERBS_DEVICE.
func deviceName(t testing.TB) string {
	t.Helper()
	name := os.Getenv("GOVERBS_DEVICE")
	if name == "" {
		t.Fatal("set GOVERBS_DEVICE to the device to test, mlx5_0 for instance")
	}
	return name
}

func TestDeviceConformance(t *testing.T) {
	name := deviceName(t)
	for _, env := range []string{"", "MLX5_SHUT_UP_BF=1", "MLX5_CQE_SIZE=128", "MLX5_NUM_LOW_LAT_UUARS=0"} {
		t.Run(env, func(t *testing.T) {
			if env != "" {
				key, value := split(env)
				t.Setenv(key, value)
			}
			providertest.Run(t, func(t *testing.T) *providertest.Rig { return providertest.Device(t, name) })
			if env != "" {
				return // registers and completions are the same for all services
			}
			t.Run("SRQ", func(t *testing.T) {
				providertest.RunSRQ(t, func(t *testing.T) *providertest.Rig {
					r := providertest.DeviceSRQ(t, name)
					r.ResizeSRQ = nil // the device does not support it
					return r
				})
			})
			t.Run("UC", func(t *testing.T) {
				providertest.RunUC(t, func(t *testing.T) *providertest.Rig { return providertest.DeviceUC(t, name) })
			})
			t.Run("UD", func(t *testing.T) {
				providertest.RunUD(t, func(t *testing.T) *providertest.Rig { return providertest.DeviceUD(t, name) })
			})
		})
	}
}

func split(env string) (key, value string) {
	for i := range env {
		if env[i] == '=' {
			return env[:i], env[i+1:]
		}
	}
	return env, ""
}
