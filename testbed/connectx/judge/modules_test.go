//go:build vm

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// testModules unloads and reloads the drivers repeatedly. mlx5_ib must destroy
// what it has created, and after mlx5_core the device must have no objects.
func (m *machines) testModules(t *testing.T, times int) {
	g := m.guests[0]
	devices := m.world.Devices[:2]
	objects := func() (all [2]engine.Objects, pages int) {
		m.world.Loop.Run(func() {
			for i, d := range devices {
				all[i] = d.Engine().Objects()
				pages += d.PagesHeld()
			}
		})
		return all, pages
	}
	const load = "insmod /proc/1/root/modules/%s.ko\n"
	m.output(t, g, "rmmod mlx5_ib")
	// A network device that is up has queues; the one of a freshly loaded
	// driver is down.
	m.output(t, g, "for d in /sys/bus/pci/drivers/mlx5_core/*/net/*; do test ! -e $d || ip link set ${d##*/} down; done")
	core, _ := objects()
	for range times {
		m.output(t, g, fmt.Sprintf(load, "mlx5_ib")+"rmmod mlx5_ib")
		if now, _ := objects(); now != core {
			t.Errorf("after mlx5_ib there are %+v, before it there were %+v", now, core)
		}
		m.output(t, g, "rmmod mlx5_core")
		if now, pages := objects(); now != [2]engine.Objects{} || pages != 0 {
			t.Errorf("after mlx5_core there are %+v, and %d pages", now, pages)
		}
		m.output(t, g, fmt.Sprintf(load, "mlx5_core"))
		if now, _ := objects(); now != core {
			t.Errorf("mlx5_core has %+v, the first time %+v", now, core)
		}
	}
	m.output(t, g, fmt.Sprintf(load, "mlx5_ib"))
	if info := m.output(t, g, "ibv_devinfo"); strings.Count(info, "hca_id:") != 2 || strings.Count(info, "fw_ver:") != 2 {
		t.Errorf("after all, C finds\n%s", info)
	}
}

// powerOff powers the guests off with their drivers loaded. Their kernels must
// log nothing unexpected, and the devices must have no objects.
func (m *machines) powerOff(t *testing.T) {
	for _, g := range m.guests {
		checkLog(t, g)
		before := len(g.ConsoleText())
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		for line := range strings.Lines(g.ConsoleText()[before:]) {
			checkLine(t, g, line)
		}
	}
	for _, d := range m.world.Devices {
		// The device detects the machine's end by the closed connection.
		empty := func() bool { return d.Engine().Objects() == engine.Objects{} && d.PagesHeld() == 0 }
		if !m.world.AwaitTest(t, 10*time.Second, empty) {
			t.Errorf("%s has objects of a machine that was powered off", d.Name)
		}
	}
}
