//go:build vm

package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// optionGames are run with optional features of an adapter: memory on demand
// (-o, and -O of all memory), and SRQs.
var optionGames = []game{
	{Program: "ibv_rc_pingpong", Args: "-c -n 50", Core: true},
	{Program: "ibv_rc_pingpong", Args: "-c -o -s 65536 -n 20", Core: true},
	{Program: "ibv_rc_pingpong", Args: "-c -O -n 20", Core: true},
	{Program: "ibv_srq_pingpong", Args: "-c -o -n 20", Core: true},
	{Program: "ibv_xsrq_pingpong", Args: "-n 20", Core: true},
}

// TestAdapterOptions runs C programs on a device with memory on demand, UAR
// page numbers beyond 16 bits, SRQ receives out of order, and options of
// enhanced connection establishment, which librdmacm negotiates.
func TestAdapterOptions(t *testing.T) {
	const ece = 0x3000_0006
	m := &machines{place: place{"6.12", roce}, nextPort: 18515}
	var record bytes.Buffer // used in the loop
	m.world = world.StartTest(t, world.Config{LinkLayer: connectx.Ethernet, Devices: 1, Violation: m.violation(t),
		Tracer: trace.New(&record),
		Adapt:  func(_ int, c *connectx.Config) { c.ODP, c.FirstUAR, c.ECE, c.ShuffleSRQ = true, 1<<16, ece, 4 }})
	c := vm.Config{Kernel: m.kernel, Root: true, Modules: []string{"mlx5_ib", "ib_umad", "rdma_ucm"},
		VFIOUser: m.world.Sockets()}
	m.guests = []*vm.Guest{vm.Start(t, c)}
	m.output(t, m.guests[0], "ip link set lo up"+net+"net mlx5_0 10.9.0.1")
	e := m.end(t, 0, "mlx5_0", "10.9.0.1")
	for _, g := range optionGames {
		t.Run(g.String(), func(t *testing.T) { m.play(t, g, e, e) })
	}
	for _, g := range cmGames {
		if g.name == "ucmatose" {
			t.Run(g.name, func(t *testing.T) { m.playCM(t, g, e, e) })
		}
	}
	checkLog(t, m.guests[0])
	var text string
	var counters engine.Counters
	m.world.Loop.Run(func() { text, counters = record.String(), m.world.Devices[0].Engine().Counters() })
	for what, pattern := range map[string]string{
		"a queue pair with the device's options": `"name":"CREATE_QP".*"ece":268435456.*"out\.ece":805306374`,
		"a negotiation": `"name":"(RST2INIT|INIT2INIT|INIT2RTR)_QP"` +
			`.*"ece":805306374.*"out\.ece":805306374`,
	} {
		if !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("the trace does not have %s", what)
		}
	}
	if counters.SRQReceives == 0 || counters.PageFaults == 0 {
		t.Errorf("counters %+v", counters)
	}
}
