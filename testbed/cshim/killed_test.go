//go:build vm

package cshim_test

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/verbstest"
)

// Nothing remains of programs that are killed while they communicate: verbstest and leaktest report what does.
func TestKilled(t *testing.T) {
	for _, name := range []string{"ibv_rc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong"} {
		t.Run(name, func(t *testing.T) {
			n := verbstest.NewNetwork(t)
			a, b := cshim.New(t, n.Machine()), cshim.New(t, n.Machine())
			args := []string{"-e", "-g", "3", "-n", "1000000000", "-p", freePort(t)}
			server := start(t, a.Command(name, args...))
			client := startBusy(t, b, name, append(args, "127.0.0.1")...)
			for _, r := range []*running{client, server} {
				if err := r.Process.Kill(); err != nil {
					t.Error(err)
				}
				if err := r.end(); err == nil || !strings.Contains(err.Error(), "killed") {
					t.Errorf("%s: %v\n%s", name, err, r.out.String())
				}
			}
			for _, h := range []*cshim.Host{a, b} {
				h.Await(func(s foreign.Stats) bool { return s.Nodes == 0 })
			}
		})
	}
}

// startBusy starts a client until its server accepts connections, and returns when it communicates.
func startBusy(t *testing.T, h *cshim.Host, name string, args ...string) *running {
	t.Helper()
	for commands := 0; ; {
		r := start(t, h.Command(name, args...))
		stores := 0
		h.Await(func(s foreign.Stats) bool {
			ended := s.Nodes == 0 && s.Commands > commands
			if stores = s.Stores; ended {
				commands = s.Commands
			}
			return stores > 1000 || ended
		})
		if stores > 1000 {
			return r
		}
		if err := r.end(); err == nil || !strings.Contains(r.out.String(), "Couldn't connect") {
			t.Fatalf("%s: %v\n%s", name, err, r.out.String())
		}
	}
}
