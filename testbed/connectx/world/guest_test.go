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

// TestReinsertion: the kernel's drivers find a device again that the guest has
// let go, and one that was pulled out under them and put back; a second one
// comes while the guest runs. When the drivers go, nothing of theirs is left.
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
	// A port comes up, and a device gets its file, a little after the driver has
	// made the device.
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
	active("let go and found", 1)

	w.Loop.Run(w.Devices[0].Slot.Pull)
	// Until its watch over the device has noticed, the driver waits a minute for
	// each command.
	shell("until dmesg | grep -q 'mlx5_core.*Fatal error'; do sleep 0.2; done")
	if out := shell("echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove; ls /sys/class/infiniband"); out != "" {
		t.Errorf("pulled out, and there is %s", out)
	}
	w.Loop.Run(w.Devices[0].Slot.Plug)
	shell("echo 1 > /sys/bus/pci/rescan")
	active("pulled out and put back", 1)

	if err := g.AddVFIOUser("late", w.Sockets()[1]); err != nil {
		t.Fatal(err)
	}
	active("one more came", 2)

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
