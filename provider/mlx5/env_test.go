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
		{want: settings{blueFlame: true, preferBF: true, registers: 16, exclusive: 4, cqeSize: 64, scatter: true}},
		{env: map[string]string{"MLX5_SHUT_UP_BF": "1", "MLX5_POST_SEND_PREFER_BF": "0", "MLX5_CQE_SIZE": "128"},
			want: settings{blueFlame: false, preferBF: false, registers: 16, exclusive: 4, cqeSize: 128, scatter: true}},
		{env: map[string]string{"MLX5_SHUT_UP_BF": "0", "MLX5_POST_SEND_PREFER_BF": "1"},
			want: settings{blueFlame: true, preferBF: true, registers: 16, exclusive: 4, cqeSize: 64, scatter: true}},
		{env: map[string]string{"MLX5_SCATTER_TO_CQE": "0"}, want: settings{blueFlame: true, preferBF: true, registers: 16,
			exclusive: 4, cqeSize: 64}},
		{env: map[string]string{"MLX5_SCATTER_TO_CQE": "1"}, want: settings{blueFlame: true, preferBF: true, registers: 16,
			exclusive: 4, cqeSize: 64, scatter: true}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "64"}, want: settings{blueFlame: true, preferBF: true, registers: 64,
			exclusive: 52, cqeSize: 64, scatter: true}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "1"}, want: settings{blueFlame: true, preferBF: true, registers: 2,
			exclusive: 2, cqeSize: 64, scatter: true}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "8", "MLX5_NUM_LOW_LAT_UUARS": "0"},
			want: settings{blueFlame: true, preferBF: true, registers: 8, exclusive: 0, cqeSize: 64, scatter: true}},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "0"}, bad: true},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "513"}, bad: true},
		{env: map[string]string{"MLX5_TOTAL_UUARS": "many"}, bad: true},
		{env: map[string]string{"MLX5_NUM_LOW_LAT_UUARS": "-1"}, bad: true},
		{env: map[string]string{"MLX_QP_ALLOC_TYPE": "huge", "MLX_CQ_ALLOC_TYPE": "PREFER_HUGE", "MLX_SRQ_ALLOC_TYPE": "ANON",
			"MLX_RWQ_ALLOC_TYPE": "HUGE"},
			want: settings{blueFlame: true, preferBF: true, registers: 16, exclusive: 4, cqeSize: 64,
				scatter: true, qpPages: hugePages, cqPages: hugeOrSmallPages, wqPages: hugePages}},
		{env: map[string]string{"MLX_QP_ALLOC_TYPE": "CONTIG"}, bad: true},
		{env: map[string]string{"MLX5_CQE_SIZE": "96"}, bad: true},
		{env: map[string]string{"MLX5_CQE_SIZE": "32"}, bad: true},
	} {
		got, err := readSettings(func(k string) string { return c.env[k] }, 4096)
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
	if _, err := (mlx5Provider{}).Open(nil, nil); !errors.Is(err, uverbs.ErrInvalid) {
		t.Errorf("Open: %v", err)
	}
}

// TestSettingsByPageSize checks that there are registers for at least one page of the CPU, as with libmlx5.
func TestSettingsByPageSize(t *testing.T) {
	for _, c := range []struct {
		page                 int
		total                string
		registers, exclusive int
	}{
		{4096, "", 16, 4}, {16384, "", 16, 4}, {65536, "", 32, 20}, {4096, "1", 2, 2}, {16384, "1", 8, 4},
		{65536, "64", 64, 52}, {65536, "15", 32, 20},
	} {
		s, err := readSettings(func(k string) string { return map[string]string{"MLX5_TOTAL_UUARS": c.total}[k] }, c.page)
		if err != nil || s.registers != c.registers || s.exclusive != c.exclusive {
			t.Errorf("pages of %d bytes, %q registers: %d, %d owned, %v; want %d, %d", c.page, c.total, s.registers, s.exclusive,
				err, c.registers, c.exclusive)
		}
	}
}
