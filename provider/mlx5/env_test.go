package mlx5

import (
	"errors"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want settings
		bad  bool
	}{
		{want: settings{true, true, 16, 4, 64}},
		{env: map[string]string{"MLX5_SHUT_UP_BF": "1", "MLX5_POST_SEND_PREFER_BF": "0", "MLX5_CQE_SIZE": "128"}, want: settings{false, false, 16, 4, 128}},
		{env: map[string]string{"MLX5_SHUT_UP_BF": "0", "MLX5_POST_SEND_PREFER_BF": "1"}, want: settings{true, true, 16, 4, 64}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "64"}, want: settings{true, true, 64, 52, 64}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "1"}, want: settings{true, true, 2, 2, 64}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "8", "MLX5_NUM_LOW_LAT_UUARS": "0"}, want: settings{true, true, 8, 0, 64}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "0"}, bad: true},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "513"}, bad: true},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "many"}, bad: true},
		{env: map[string]string{"MLX5_NUM_LOW_LAT_UUARS": "-1"}, bad: true},
		{env: map[string]string{"MLX5_CQE_SIZE": "96"}, bad: true},
		{env: map[string]string{"MLX5_CQE_SIZE": "32"}, bad: true},
	} {
		got, err := readSettings(func(k string) string { return c.env[k] })
		if c.bad {
			if !errors.Is(err, uverbs.ErrInvalid) {
				t.Errorf("%v: %+v, %v", c.env, got, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%v: %+v, %v; want %+v", c.env, got, err, c.want)
		}
	}
}

func TestOpenWithBadSettings(t *testing.T) {
	t.Setenv("MLX5_CQE_SIZE", "7")
	if _, err := (driver{}).Open(nil, nil); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("Open: %v", err)
	}
}
