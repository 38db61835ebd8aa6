//go:build vm

package differential

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// TestARM64 runs the scenes that its kernel has with the Go program on the other architecture,
// without C. Completions and data must be correct, without violations of strict
// mode.
func TestARM64(t *testing.T) {
	s := &stage{gid: "0"}
	s.world = world.StartTest(t, world.Config{Devices: 1, Adapt: world.ByCommands, Tracer: trace.New(&s.recorder)})
	s.guest = vm.Start(t, vm.Config{Kernel: "6.12", Arch: "arm64", Modules: []string{"mlx5_ib"},
		VFIOUser: s.world.Sockets()})
	player := s.install(t, vm.BuildProgram(t, "./play", "", "arm64"))
	for _, x := range scenes {
		if !x.runsOn("6.12", connectx.InfiniBand) {
			continue
		}
		t.Run(strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) {
			if _, did := s.play(t, player, s.script(t, x)); !strings.Contains(did, "CREATE_CQ") {
				t.Errorf("the device has received no commands:\n%s", did)
			}
		})
	}
}
