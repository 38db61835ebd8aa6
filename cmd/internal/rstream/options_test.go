package rstream

import (
	"strconv"
	"strings"
	"testing"
)

// TestSeries compares the tests with those of the C program.
func TestSeries(t *testing.T) {
	for args, want := range map[string]string{
		"": "64_lat 1 100000, 4k_lat 1 10000, 64k_lat 1 1000, 1m_lat 1 100; " +
			"64_bw 100000 1, 4k_bw 10000 1, 64k_bw 1000 1, 1m_bw 100 1",
		"-S all": "64_lat, 128_lat, 192_lat, 256_lat, 384_lat, 512_lat, 768_lat, 1k_lat, 1.5k_lat, 2k_lat, 3k_lat, 4k_lat, " +
			"6k_lat, 8k_lat, 12k_lat, 16k_lat, 24k_lat, 32k_lat, 48k_lat, 64k_lat, 96k_lat, 128k_lat, 192k_lat, 256k_lat, " +
			"384k_lat, 512k_lat, 768k_lat, 1m_lat, 1.5m_lat, 2m_lat, 3m_lat, 4m_lat, 6m_lat",
	} {
		o, err := Rstream.parse(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, s := range o.series() {
			var names []string
			for _, x := range s.tests {
				name := x.name
				if args == "" {
					name += " " + strconv.Itoa(x.transfers) + " " + strconv.Itoa(x.iters)
				}
				names = append(names, name)
			}
			all = append(all, strings.Join(names, ", "))
		}
		if got := strings.Join(all, "; "); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", args, got)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	for _, c := range []struct {
		program    *Program
		args, want string
	}{
		{Rstream, "-I 3 -S 1 -C 5 -T verify -f", "option -f needs an argument"},
		{Rstream, "-T x", `unknown test option "x"`},
		{Rstream, "-f gid", "rsockets have no GIDs"},
		{Rstream, "-k 0", `"0" is not a number from 1`},
		{Rstream, "host", `unexpected argument "host": give the server with -s`},
		{Riostream, "-k 3", "unknown option -k"}, // an option of rstream only
		{Riostream, "-T s", `unknown test option "s"`},
	} {
		err := c.program.Run(t.Context(), strings.Fields(c.args), nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %q: error %v, want %q", c.program.name, c.args, err, c.want)
		}
	}
}
