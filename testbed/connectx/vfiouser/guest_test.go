//go:build vm

package vfiouser_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/vfiouser"
	"github.com/goverbs/goverbs/testbed/vm"
)

// found is what the guest's kernel and a program there find of a toy.
const found = `vendor 0x15b3
device %s
class 0xff0000
revision 0x07
current_link_speed 8.0 GT/s PCIe
current_link_width 16
capability 0x10
capability 0x11
vectors 4
bar0 0xc
configuration b3 15 %s 10 06 04 10 00 07 00 00 ff 10 00 00 00
size 33554432
scratch 0x1122334455667788 0x11223344 0xaabbccdd
counted 3`

const pulled = `size 33554432
identity ff ff ff ff
count 0xffffffff`

// TestGuest checks that a guest's stock kernel lists the device, that a program
// reaches its registers, and that it reaches the guest's memory and interrupts:
// after boot, after removal and rescan by the guest, after surprise removal and
// reinsertion, and after hot plug.
func TestGuest(t *testing.T) {
	d := &vfiouser.Removable{Device: newToy(t, 0x1017)}
	run, socket := serve(t, d)
	_, second := serve(t, newToy(t, 0x1019))
	g := vm.Start(t, vm.Config{Kernel: "6.12", VFIOUser: []string{socket}})
	file, err := g.Install(vm.BuildProgram(t, "./testdata/probe", "", ""))
	if err != nil {
		t.Fatal(err)
	}
	probe := func(want string, args ...string) {
		t.Helper()
		out, err := g.Command(file, args...).CombinedOutput()
		if got := strings.TrimSpace(string(out)); err != nil || got != want {
			t.Fatalf("the guest found:\n%s\n%v, want:\n%s", got, err, want)
		}
	}
	first := fmt.Sprintf(found, "0x1017", "17")
	again := func() {
		t.Helper()
		probe("", "0x1017", "remove")
		probe("", "0x1017", "rescan")
		probe(first, "0x1017")
	}
	probe(first, "0x1017")
	again()

	run(d.Pull)
	probe(pulled, "0x1017", "pulled")
	run(d.Plug)
	again()

	if err := g.AddVFIOUser("hotplug", second); err != nil {
		t.Fatal(err)
	}
	probe(fmt.Sprintf(found, "0x1019", "19"), "0x1019")
	complaints, err := g.Complaints(t.Context())
	if err != nil || len(complaints) > 0 {
		t.Errorf("the kernel complains: %q, %v", complaints, err)
	}
}

// serve serves a device until the test ends. It returns the function to run a
// step, and the socket.
func serve(t *testing.T, d vfiouser.Device) (run func(func()), socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "toy.sock")
	l, err := vfiouser.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	run = func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
	s := &vfiouser.Server{
		Device: d,
		Run:    run,
		Report: func(err error) { t.Errorf("the server reports: %v", err) },
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return run, socket
}
