//go:build vm

package main

import (
	"bytes"
	_ "embed"
	"regexp"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

//go:embed testdata/devx.py
var devxPython string

// TestDevX opens a context with DevX by libmlx5 and executes a command through
// it, then runs programs whose objects have a user. The driver destroys the
// user contexts.
func TestDevX(t *testing.T) {
	for _, kernel := range []string{"6.1", "6.12", "7.2"} {
		t.Run(kernel, func(t *testing.T) {
			if kernel != "6.12" {
				vm.SkipRepeat(t, "6.12")
			}
			m := &machines{place: place{kernel, ib}, nextPort: 18515}
			var record bytes.Buffer // used in the loop
			m.world = world.StartTest(t, world.Config{LinkLayer: connectx.InfiniBand, Devices: 1,
				Violation: m.violation(t), Tracer: trace.New(&record)})
			g := vm.Start(t, vm.Config{Kernel: kernel, Root: true, Modules: []string{"mlx5_ib"},
				VFIOUser: m.world.Sockets()})
			m.guests = []*vm.Guest{g}
			program.Until(t, g, "grep -qs ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
			program.Run(t, g, "ip", "link", "set", "lo", "up")
			if out := program.Run(t, g, "python3", "-c", devxPython); out != "contexts 8\n" {
				t.Errorf("the program printed %q", out)
			}
			e := m.end(t, 0, "mlx5_0", "127.0.0.1")
			m.play(t, game{Program: "ibv_rc_pingpong", Args: "-c -n 50", Core: true}, e, e)
			checkLog(t, g)
			checkUsers(t, m, &record)
		})
	}
}

// checkUsers checks that the driver has created user contexts, and destroyed
// all but its own.
func checkUsers(t *testing.T, m *machines, record *bytes.Buffer) {
	t.Helper()
	var text string
	m.world.Loop.Run(func() { text = record.String() })
	created := len(regexp.MustCompile(`"name":"CREATE_UCTX"`).FindAllString(text, -1))
	destroyed := len(regexp.MustCompile(`"name":"DESTROY_UCTX"`).FindAllString(text, -1))
	if created != 4 || destroyed != 3 {
		t.Errorf("%d user contexts were created and %d destroyed, want 4 and 3", created, destroyed)
	}
}
