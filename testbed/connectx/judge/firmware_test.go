//go:build vm

package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/prm"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// oldFirmware configures a device like an early ConnectX-4: small tables, no
// atomics, no user indices in completions, none of the later options. On
// InfiniBand it has no virtual ports and no interface versions. The driver's
// network device needs long WQEs and moderation, and mlx5_ib needs XRC.
func oldFirmware(_ int, c *connectx.Config) {
	c.PCIDevice, c.Firmware = 0x1013, [3]uint16{12, 14, 2036}
	set := func(v uint64, fields ...prm.Field) {
		for _, f := range fields {
			c.Capabilities = append(c.Capabilities, connectx.Capability{Type: connectx.CapGeneral, Field: f, Value: v})
		}
	}
	set(0, prm.HCACapCQEVersion, prm.HCACapCQResize, prm.HCACapCQOI, prm.HCACapSctrDataCQE, prm.HCACapAtomic,
		prm.HCACapIMAICL, prm.HCACapFixedBufferSize, prm.HCACapUMRPtrRLKY, prm.HCACapAPM, prm.HCACapBlockLBMC,
		prm.HCACapSetDethSqpn,
		prm.HCACapECESupport, prm.HCACapUAR4k, prm.HCACapDeviceMemory, prm.HCACapLogMaxUctx, prm.HCACapLogMaxUMem)
	set(10, prm.HCACapLogMaxSRQ, prm.HCACapLogMaxPD, prm.HCACapLogMaxQPSize, prm.HCACapLogMaxSRQSize)
	set(12, prm.HCACapLogMaxQP, prm.HCACapLogMaxCQ, prm.HCACapLogMaxCQSize)
	set(14, prm.HCACapLogMaxMKey)
	set(1, prm.HCACapUMRModifyEntitySizeDisabled)
	set(2, prm.HCACapLogMaxRAReqQP, prm.HCACapLogMaxRAResQP)
	if c.NoISSI = c.LinkLayer == connectx.InfiniBand; c.NoISSI {
		set(0, prm.HCACapIBVirt, prm.HCACapCQModeration)
		set(512, prm.HCACapMaxWQESizeSQ)
	}
}

// TestOldFirmware checks that the driver runs with old firmware, that C sees
// only the claimed capabilities, and that its programs run.
func TestOldFirmware(t *testing.T) {
	m := &machines{place: place{"6.12", ib}, nextPort: 18515}
	c := vm.Config{Kernel: m.kernel, Root: true, Modules: []string{"mlx5_ib", "ib_umad"}}
	for _, l := range []connectx.LinkLayer{connectx.InfiniBand, connectx.Ethernet} {
		m.world = world.StartTest(t, world.Config{LinkLayer: l, Devices: 1, Adapt: oldFirmware, Violation: m.violation(t)})
		c.VFIOUser = append(c.VFIOUser, m.world.Sockets()...)
	}
	m.guests = []*vm.Guest{vm.Start(t, c)}
	m.output(t, m.guests[0], "ip link set lo up"+net+"net mlx5_1 10.9.0.1")
	for device, link := range map[string]string{"mlx5_0": ib, "mlx5_1": roce} {
		t.Run(link, func(t *testing.T) {
			m.link = link
			e := m.end(t, 0, device, "10.9.0.1")
			info := m.output(t, e.guest, "ibv_devinfo -v -d "+device)
			for _, line := range oldInfo {
				if !regexp.MustCompile(`(?m)^\s*` + line + `\s*$`).MatchString(info) {
					t.Errorf("there is no %q in\n%s", line, info)
				}
			}
			played := 0
			for _, g := range games.CoreOf(games.Pingpongs) {
				if slices.Contains(oldGames[link], g.Program) &&
					(g.Program == "ibv_xsrq_pingpong" || strings.Contains(g.Args, "-e ")) {
					t.Run(g.String(), func(t *testing.T) { m.play(t, g, e, e) })
					played++
				}
			}
			if played == 0 {
				t.Error("no program was run")
			}
		})
	}
	checkLog(t, m.guests[0])
}

// oldGames are the programs for which the driver and libmlx5 take other paths:
// SRQs without interface versions, completions without user indices, management
// queue pairs without a choice of their number.
var oldGames = map[string][]string{
	ib:   {"ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong", "ibv_xsrq_pingpong"},
	roce: {"ibv_rc_pingpong", "ibv_srq_pingpong"},
}

// oldInfo is output of ibv_devinfo for such firmware.
var oldInfo = []string{
	`fw_ver:\s+12\.14\.2036`, `vendor_part_id:\s+4115`, `max_qp:\s+4096`, `max_qp_wr:\s+256`, `max_cq:\s+4096`,
	`max_cqe:\s+4095`, `max_mr:\s+16384`,
	`max_pd:\s+1024`, `max_srq:\s+1024`, `max_srq_wr:\s+1023`, `max_qp_rd_atom:\s+4`, `atomic_cap:\s+ATOMIC_NONE.*`,
	`state:\s+PORT_ACTIVE.*`,
}
