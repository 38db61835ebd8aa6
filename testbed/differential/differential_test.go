//go:build vm

package differential

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A recorder collects the trace between steps of the loop.
type recorder struct{ to *bytes.Buffer }

func (r *recorder) Write(b []byte) (int, error) {
	if r.to != nil {
		return r.to.Write(b)
	}
	return len(b), nil
}

// A stage is a guest with a device and the two programs.
type stage struct {
	world    *world.World
	recorder recorder
	guest    *vm.Guest
	gid      string
	programs []string // C's and Go's
}

func startStage(t *testing.T, kernel string, layer connectx.LinkLayer) *stage {
	s := &stage{gid: "0"}
	s.world = world.StartTest(t, world.Config{LinkLayer: layer, Devices: 1, Adapt: world.ByCommands,
		Tracer: trace.New(&s.recorder)})
	s.guest = vm.Start(t, vm.Config{Kernel: kernel, Root: true, Modules: []string{"mlx5_ib"}, VFIOUser: s.world.Sockets()})
	if layer == connectx.Ethernet {
		s.gid = "3" // the RoCE v2 GID of the IPv4 address follows two of the MAC address
		program.Run(t, s.guest, "sh", "-e", "-c", quiet)
	}
	return s
}

// quiet configures the device's network device. Without IPv6 it sends nothing
// by itself.
const quiet = `
d=$(ls /sys/class/infiniband/mlx5_0/device/net)
echo 1 > /proc/sys/net/ipv6/conf/$d/disable_ipv6
ip link set $d up
ip addr add 10.9.0.1/24 dev $d
for i in $(seq 100); do
	grep -q 0a09:0001 /sys/class/infiniband/mlx5_0/ports/1/gids/3 && exit 0
	sleep 0.1
done
exit 1`

// play runs a program, and returns its output and the trace.
func (s *stage) play(t *testing.T, name, script string) (printed, trace string) {
	t.Helper()
	var to bytes.Buffer
	s.world.Loop.Run(func() { s.recorder.to = &to })
	printed = program.Run(t, s.guest, name, script, "mlx5_0", s.gid)
	s.world.Loop.Run(func() { s.recorder.to = nil })
	return printed, to.String()
}

// TestSame runs each scene with both programs, on each kernel and both link
// layers that have it.
func TestSame(t *testing.T) {
	seen := make(map[difference]bool)
	compared := 0
	places := []struct {
		kernel, link string
		layer        connectx.LinkLayer
	}{
		{"6.1", "roce", connectx.Ethernet}, {"6.12", "roce", connectx.Ethernet}, {"7.2", "roce", connectx.Ethernet},
		{"6.12", "ib", connectx.InfiniBand},
	}
	for _, p := range places {
		t.Run(p.kernel+"/"+p.link, func(t *testing.T) {
			repeats := func(x scene) bool { return p.kernel != "6.12" && x.runsOn("6.12", p.layer) }
			if !slices.ContainsFunc(scenes, func(x scene) bool { return x.runsOn(p.kernel, p.layer) && !repeats(x) }) {
				vm.SkipRepeat(t, "6.12/"+p.link)
			}
			s := startStage(t, p.kernel, p.layer)
			s.programs = []string{vm.BuildC(t, s.guest, "testdata/play.c", "mlx5"),
				s.install(t, vm.BuildProgram(t, "./play", "", ""))}
			s.play(t, s.programs[0], s.script(t, scenes[0])) // objects that the driver keeps for reuse
			for _, x := range scenes {
				if !x.runsOn(p.kernel, p.layer) {
					compared++ // neither C nor Go can run it
					continue
				}
				t.Run(strings.ReplaceAll(x.name, " ", "_"), func(t *testing.T) {
					if repeats(x) {
						vm.SkipRepeat(t, "6.12/"+p.link)
					}
					s.compare(t, x, seen)
					compared++
				})
			}
			if p.kernel == "6.12" && p.layer == connectx.Ethernet {
				t.Run("half_way", s.halfWay)
			}
		})
	}
	if compared < len(places)*len(scenes) {
		return // only some scenes were selected, or could be run
	}
	for _, d := range differences {
		if !seen[d] {
			t.Errorf("this difference did not occur: %+v", d)
		}
	}
}

// script installs the script of a scene.
func (s *stage) script(t *testing.T, x scene) string {
	t.Helper()
	var text script
	x.play(&text)
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return s.install(t, file)
}

// compare runs a scene with both programs, and records which of the known
// differences occur. If GOVERBS_TRACES is a directory, it writes the traces
// there, for cmd/tracediff.
func (s *stage) compare(t *testing.T, x scene, seen map[difference]bool) {
	var printed, traces [2]string
	script := s.script(t, x)
	for i, p := range s.programs {
		printed[i], traces[i] = s.play(t, p, script)
	}
	if d := cmp.Diff(printed[0], printed[1]); d != "" {
		t.Errorf("C (-) and Go (+) print:\n%s", d)
	}
	for _, kind := range []string{"command", "wqe", "uar", "doorbell_record", "cqe"} {
		if d := differ(t, traces, kind, x, difference{}); d != nil {
			t.Errorf("%s: C (-) and Go (+): %v", kind, d)
			continue
		}
		for _, known := range differences {
			if strings.HasPrefix(known.ignore, kind+".") && differ(t, traces, kind, x, known) != nil {
				seen[known] = true
			}
		}
	}
	if dir := os.Getenv("GOVERBS_TRACES"); dir != "" {
		s.keep(t, filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", ".")), traces)
	}
}

// differ returns the first difference between events of a kind, ignoring the
// known differences except one.
func differ(t *testing.T, traces [2]string, kind string, x scene, but difference) *trace.Difference {
	t.Helper()
	o := trace.Options{Kinds: []string{kind}, Omit: queries, Ignore: slices.Clone(chosen)}
	for _, d := range differences {
		if d == but || !strings.HasPrefix(x.name, d.scene) {
			continue
		}
		o.Ignore = append(o.Ignore, d.ignore)
	}
	d, err := trace.Compare(strings.NewReader(traces[0]), strings.NewReader(traces[1]), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// keep writes traces to files.
func (s *stage) keep(t *testing.T, name string, traces [2]string) {
	for i, of := range []string{".c", ".go"} {
		if err := os.WriteFile(name+of, []byte(traces[i]), 0o644); err != nil {
			t.Error(err)
		}
	}
}

func (s *stage) install(t *testing.T, file string) string {
	t.Helper()
	at, err := s.guest.Install(file)
	if err != nil {
		t.Fatal(err)
	}
	return at
}
