//go:build vm

// Package irdma_test runs C programs with libirdma on the E810 of the kernel in memory.
package irdma_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/fakeirdma"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
	_ "github.com/goverbs/goverbs/provider/irdma"
	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/vm"
)

func TestMain(m *testing.M) {
	cshim.Prepare()
	leaktest.Main(m)
}

func on(t *testing.T, d *fakeirdma.Device) *cshim.Host { return cshim.On(t, d.Name(), "irdma") }

// models are the configurations of the device that change what programs write.
var models = map[string]fakeirdma.Config{
	"E810":             fakeirdma.E810,
	"E810, old driver": {Generation: 2, Resize: true, Old: true},
	"E810, no resize":  {Generation: 2},
}

// C's ibv_devinfo describes the device as it is.
func TestDevinfo(t *testing.T) {
	d := fakeirdma.New(t, 1, fakeirdma.E810).Device(0)
	out, err := on(t, d).Command("ibv_devinfo", "-v").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"hca_id:\t" + d.Name(), "vendor_id:\t\t\t0x8086", "vendor_part_id:\t\t\t5522",
		"fw_ver:\t\t\t\t1.71", "max_qp_wr:\t\t\t4063", "max_sge:\t\t\t13", "state:\t\t\tPORT_ACTIVE",
		"link_layer:\t\tEthernet"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("there is no %q in what it prints:\n%s", want, out)
		}
	}
}

// The pairs of programs.
var pairs = []games.Game{
	{Program: "ibv_rc_pingpong", Args: "-s 4000 -n 100 -c", Core: true},
	{Program: "ibv_rc_pingpong", Args: "-s 64 -n 100 -e"},
	{Program: "ibv_ud_pingpong", Args: "-s 1024 -n 100", Core: true},
	{Program: "ib_send_bw", Args: "-s 65536 -n 100 -q 2"},
	{Program: "ib_send_lat", Args: "-s 32 -n 100 -I 32 -e"},
	{Program: "ib_send_lat", Args: "-s 512 -n 100 -c UD"},
	{Program: "ib_read_bw", Args: "-s 1048576 -n 10", Core: true},
	{Program: "ib_write_bw", Args: "-s 65536 -n 50", Core: true},
	{Program: "ib_write_lat", Args: "-s 64 -n 50 -I 101"},
}

// C's programs with each other, between two devices.
func TestPairs(t *testing.T) {
	for name, cfg := range models {
		t.Run(name, func(t *testing.T) {
			for _, g := range pairs {
				t.Run(g.String(), func(t *testing.T) {
					if !g.Core {
						vm.SkipRepeat(t, "the program with other sizes, or the others")
					}
					cfg.Strict = true
					f := fakeirdma.New(t, 2, cfg)
					cshim.Play(t, g, "3", on(t, f.Device(0)), on(t, f.Device(1)))
				})
			}
		})
	}
}
