//go:build vm

package vm

import (
	"regexp"
	"strings"
	"sync"
	"testing"
)

// TestLink checks that two guests on a link reach each other, that netem loses
// packets, and that SetLink disconnects them.
func TestLink(t *testing.T) {
	left, right, err := Link()
	if err != nil {
		t.Fatal(err)
	}
	guests := make([]*Guest, 2)
	var booting sync.WaitGroup
	for i, c := range []struct {
		nic    NIC
		kernel string
	}{{left, "6.12"}, {right, "6.1"}} {
		booting.Go(func() {
			guests[i] = Start(t, Config{Kernel: c.kernel, Root: true, CPUs: 1, MemoryMB: 512, NICs: []NIC{c.nic}})
		})
	}
	booting.Wait()
	if guests[0] == nil || guests[1] == nil {
		t.FailNow()
	}
	for i, g := range guests {
		output(t, g.Command("sh", "-c", "ip addr add 10.8.0.$1/24 dev eth0 && ip link set eth0 up", "sh",
			string(rune('1'+i))))
	}
	a := guests[0]
	if got := output(t, a.Command("ping", "-c", "3", "-W", "10", "10.8.0.2")); !strings.Contains(got, " 0% packet loss") {
		t.Errorf("ping:\n%s", got)
	}

	output(t, a.Command("tc", "qdisc", "add", "dev", "eth0", "root", "netem", "loss", "50%"))
	// ping's status is not checked, because it fails when packets are lost.
	output(t, a.Command("sh", "-c", "ping -q -i 0.02 -c 100 -W 1 10.8.0.2 || true"))
	stats := output(t, a.Command("tc", "-s", "qdisc", "show", "dev", "eth0"))
	if !regexp.MustCompile(`dropped [1-9]`).MatchString(stats) {
		t.Errorf("netem lost nothing:\n%s", stats)
	}
	output(t, a.Command("tc", "qdisc", "del", "dev", "eth0", "root"))

	reaches := func() bool { return a.Command("ping", "-q", "-c", "2", "-W", "3", "10.8.0.2").Run() == nil }
	if err := a.SetLink(0, false); err != nil {
		t.Fatal(err)
	}
	if reaches() {
		t.Error("the guests reach each other without a cable")
	}
	if err := a.SetLink(0, true); err != nil {
		t.Fatal(err)
	}
	if !reaches() {
		t.Error("the guests do not reach each other after the link came up again")
	}
}

// TestHotplug adds and removes devices while the guest runs.
func TestHotplug(t *testing.T) {
	g := Start(t, Config{Kernel: "6.12", Root: true})
	count := func() int {
		return strings.Count(output(t, g.Command("sh", "-c", "cat /sys/bus/pci/devices/*/device")), "0x1044")
	}
	if err := g.DeviceAdd("virtio-rng-pci", "rng", nil); err != nil {
		t.Fatal(err)
	}
	output(t, g.Command("timeout", "30", "sh", "-c",
		"until grep -q 0x1044 /sys/bus/pci/devices/*/device; do sleep 0.1; done"))
	if n := count(); n != 1 {
		t.Errorf("%d devices after one was added", n)
	}
	if err := g.DeviceDel("rng"); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Errorf("%d devices after it was removed", n)
	}
	if err := g.DeviceDel("rng"); err == nil {
		t.Error("a device was removed twice")
	}
}
