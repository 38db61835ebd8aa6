//go:build vm

package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testWire corrupts and reorders frames between two ends. The data that C
// programs have checked must be correct, and if all frames are corrupt, the
// programs must report a timeout.
func (m *machines) testWire(t *testing.T, server, client end) {
	ipv4 := fabric.Match{EtherType: 0x0800} // of RoCE v2
	for _, f := range []fabric.Fault{
		{Action: fabric.Corrupt, Probability: 0.02},
		{Action: fabric.Reorder, Probability: 0.05, Behind: 2},
		{Action: fabric.Duplicate, Probability: 0.05},
	} {
		t.Run(string(f.Action), func(t *testing.T) {
			f.Match = ipv4
			hits := m.withFaults(t, f)
			m.play(t, game{Program: "ibv_rc_pingpong", Args: "-c -s 65536 -n 20", Core: true}, server, client)
			m.play(t, game{Program: "ib_read_bw", Args: "-s 65536 -n 20", Core: true}, server, client)
			if n := hits()[f.Action]; n < 10 {
				t.Errorf("it hit %d times", n)
			}
		})
	}
	t.Run("nothing_but_corrupt", func(t *testing.T) {
		m.withFaults(t, fabric.Fault{Action: fabric.Corrupt, Match: ipv4, Offset: -1})
		m.fails(t, game{Program: "ibv_rc_pingpong", Args: "-c -n 10", Core: true}, server, client,
			"Failed status transport retry counter exceeded (12)")
	})
}

// withFaults injects faults until the end of the test. hits returns how many
// packets they have hit.
func (m *machines) withFaults(t *testing.T, faults ...fabric.Fault) (hits func() map[fabric.Action]uint64) {
	t.Helper()
	t.Cleanup(func() { m.world.Loop.Run(m.world.Switch.ClearFaults) })
	m.world.Loop.Run(func() {
		for _, f := range faults {
			if _, err := m.world.Switch.AddFault(f); err != nil {
				t.Error(err)
			}
		}
	})
	return func() map[fabric.Action]uint64 {
		n := make(map[fabric.Action]uint64)
		m.world.Loop.Run(func() {
			for _, s := range m.world.Switch.Faults() {
				n[s.Fault.Action] += s.Hit
			}
		})
		return n
	}
}

// fails runs two programs of which the client must report an error.
func (m *machines) fails(t *testing.T, g game, server, client end, why string) {
	port := m.port()
	s := program.StartOn(t, server.guest, &program.Terminal, g.Program, argumentsOf(g, m.place, server, port)...)
	defer s.Kill()
	if !m.awaitListener(t, server.guest, s, port) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	c := program.Start(t, client.guest, g.Program, append(argumentsOf(g, m.place, client, port), server.host)...)
	if err := c.Wait(); err == nil || !strings.Contains(c.Stdout.String()+c.Stderr.String(), why) {
		t.Errorf("%v: there is no %q in\n%v", err, why, c)
	}
}
