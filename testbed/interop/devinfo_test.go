//go:build vm

package interop

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testDevinfo compares our devinfo with ibv_devinfo, byte for byte.
func (h *host) testDevinfo(t *testing.T) {
	for _, args := range []string{"", "-v", "-l", "-d " + h.device, "-v -d " + h.device + " -i 1", "-vd" + h.device} {
		t.Run("args="+args, func(t *testing.T) {
			f := strings.Fields(args)
			want := h.output(t, "ibv_devinfo", f...)
			got := h.output(t, h.path(goSide, "ibv_devinfo"), f...)
			if !strings.Contains(want, h.device) {
				t.Fatalf("ibv_devinfo %s does not see %s:\n%s", args, h.device, want)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("devinfo %s: (-ibv_devinfo +devinfo)\n%s", args, d)
			}
		})
	}
	t.Run("json", func(t *testing.T) {
		out := h.output(t, h.path(goSide, "ibv_devinfo"), "-json")
		wants := []string{`"Driver": "` + h.driver + `"`, `"State": "active"`}
		if h.driver != "siw" { // iWARP has no P_Keys
			pkey := strings.TrimSpace(h.output(t, "cat", "/sys/class/infiniband/"+h.device+"/ports/1/pkeys/0"))
			wants = append(wants, `"`+pkey+`"`)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("no %s in\n%s", want, out)
			}
		}
	})
	t.Run("no such device", func(t *testing.T) {
		p := h.start(t, h.path(goSide, "ibv_devinfo"), "-d", "none7")
		if err := p.Wait(); err == nil || !strings.Contains(p.Stderr.String(), "there is "+h.device) {
			t.Errorf("%v: %v", p, err)
		}
	})
}
