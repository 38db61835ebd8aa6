//go:build device

package mistakes

import (
	"os"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/features"
	_ "github.com/goverbs/goverbs/provider/all"
)

// TestDeviceMistakes checks what programs see of their mistakes on rxe.
func TestDeviceMistakes(t *testing.T) {
	device := os.Getenv(features.EnvDevice)
	if !strings.HasPrefix(device, "rxe") {
		t.Fatalf("%s=%q: the list of mistakes has what rxe shows: name a device of rxe", features.EnvDevice, device)
	}
	for _, m := range mistakes {
		t.Run(m.name(), func(t *testing.T) {
			seen := m.program(device)
			if !strings.HasPrefix(seen, m.rxe) {
				t.Errorf("the program sees %q, not %q", seen, m.rxe)
			}
			t.Log(seen)
		})
	}
}
