//go:build vm

package world_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
)

// TestReinsertion checks that the kernel's drivers find a device again after
// the guest has removed it, and after surprise removal and reinsertion, and
// that a second device can be inserted while the guest runs. Without drivers
// nothing of theirs remains.
func TestReinsertion(t *testing.T) {
	w := world.StartTest(t, world.Config{Devices: 2})
	g := vm.Start(t, vm.Config{
		Kernel: "6.12", Root: true, Modules: []string{"mlx5_ib", "ib_umad"}, VFIOUser: w.Sockets()[:1],
	})
	shell := func(script string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := g.CommandContext(ctx, "sh", "-e", "-c", script).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	const again = "echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove; echo 1 > /sys/bus/pci/rescan"
	// A port becomes active, and a device gets its file, some time after the
	// driver has created the device.
	active := func(after string, want int) {
		t.Helper()
		info := shell(fmt.Sprintf(`for i in $(seq 300); do
			ibv_devinfo >/tmp/info 2>&1 && test $(grep -c PORT_ACTIVE /tmp/info) = %d && break
			sleep 0.1
		done
		cat /tmp/info`, want))
		if strings.Count(info, "PORT_ACTIVE") != want {
			t.Errorf("%s:\n%s", after, info)
		}
	}
	active("after the boot", 1)
	shell(again)
	active("removed and rescanned", 1)

	w.Loop.Run(w.Devices[0].Slot.Pull)
	// The driver waits a minute for each command until its health check notices
	// the removal.
	shell("until dmesg | grep -q 'mlx5_core.*Fatal error'; do sleep 0.2; done")
	if out := shell("echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove; ls /sys/class/infiniband"); out != "" {
		t.Errorf("removed, but there is %s", out)
	}
	w.Loop.Run(w.Devices[0].Slot.Plug)
	shell("echo 1 > /sys/bus/pci/rescan")
	active("removed and reinserted", 1)

	if err := g.AddVFIOUser("second", w.Sockets()[1]); err != nil {
		t.Fatal(err)
	}
	active("a second one inserted", 2)

	shell("rmmod mlx5_ib mlx5_core")
	w.Loop.Run(func() {
		for _, d := range w.Devices {
			if n := d.PagesHeld(); n != 0 {
				t.Errorf("%s holds %d pages of a host without a driver", d.Name, n)
			}
		}
	})
	complaints, err := g.Complaints(t.Context())
	if err != nil || len(complaints) > 0 {
		t.Errorf("the kernel complains: %q, %v", complaints, err)
	}
}
