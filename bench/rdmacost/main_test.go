package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/measure"
	"github.com/goverbs/goverbs/verbstest"
)

// Every level does all of its work.
func TestLevels(t *testing.T) {
	of := map[string][]string{
		"rdma": {"read ", "write ", "small ", "large ", "connect ", "many "},
		"cm":   {"read ", "write ", "small ", "large ", "connect ", "many "},
		"tcp":  {"small ", "large ", "connect ", "many "},

		"rsocket": {"small ", "large ", "connect ", "many "},

		"calls":  {"small_echo ", "4KiB_call ", "64KiB_handled ", "large_region "},
		"sealed": {"small_sealed ", "small_ratio ", "64KiB_tls ", "large_tls ", "connect_sealed ", "many_tls "},

		"": {"read_rdma ", "write_cm ", "small_ratio ", "large_cm ", "offered_rdma ", "connect_cm ", "many_rdma "},
	}
	for level, want := range of {
		t.Run(level, func(t *testing.T) {
			addr := verbstest.New(t).Addr().String()
			if level == "tcp" {
				addr = "127.0.0.1"
			}
			levels, err := open(t.Context(), addr, level, false)
			if err != nil {
				t.Fatal(err)
			}
			if at := levels[0].Addr; at == "" {
				t.Error("no address for idle connections")
			} else if c, err := levels[0].DialAt(at); err != nil {
				t.Error(err)
			} else if err := c.Close(); err != nil {
				t.Error(err)
			}
			var b strings.Builder
			if err := measure.Run(&b, 1, 0, levels...); err != nil {
				t.Error(err)
			}
			for _, name := range want {
				if !strings.Contains("\n"+b.String(), "\n"+name) {
					t.Errorf("no %sin\n%s", name, b.String())
				}
			}
		})
	}
	if _, err := open(t.Context(), "10.9.0.1", "udp", false); err == nil {
		t.Error("level udp exists")
	}
}
