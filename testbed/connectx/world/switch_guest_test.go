//go:build vm

package world_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/internal/sim/connectx/loop"
	"github.com/goverbs/goverbs/testbed/vm"
)

// guests are two guests on a switch, one connected by a stream, one by
// datagrams. Their directory is /share in both, with a capture of each port.
type guests struct {
	t     *testing.T
	loop  *loop.Loop
	sw    *fabric.Switch
	dir   string
	guest [2]*vm.Guest
}

func startGuests(t *testing.T) *guests {
	g := &guests{t: t, loop: &loop.Loop{}, dir: t.TempDir()}
	g.sw = fabric.NewSwitch(fabric.Config{Loop: g.loop})
	t.Cleanup(func() {
		if err := g.sw.Close(); err != nil {
			t.Error(err)
		}
	})
	nic, conn, err := vm.Plug()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.sw.Stream("a", conn); err != nil {
		t.Fatal(err)
	}
	dgram, ours := g.datagrams()
	if _, err := g.sw.Datagram("b", ours); err != nil {
		t.Fatal(err)
	}
	var booting sync.WaitGroup
	for i, c := range []vm.Config{{NICs: []vm.NIC{nic}}, {QEMUArgs: dgram}} {
		c.Kernel, c.Root, c.CPUs, c.MemoryMB, c.Share = "6.12", true, 1, 512, g.dir
		booting.Go(func() { g.guest[i] = vm.Start(t, c) })
	}
	booting.Wait()
	if g.guest[0] == nil || g.guest[1] == nil {
		t.FailNow()
	}
	for i := range g.guest {
		g.output(i, "ip addr add 10.8.1.%d/24 dev eth0 && ip link set eth0 up", i+1)
	}
	return g
}

// datagrams returns the options of a QEMU NIC with -netdev dgram, and our end
// of it.
func (g *guests) datagrams() (args []string, ours *net.UnixConn) {
	local, remote := filepath.Join(g.dir, "guest"), filepath.Join(g.dir, "switch")
	ours, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: remote, Net: "unixgram"})
	if err != nil {
		g.t.Fatal(err)
	}
	return []string{
		"-netdev", fmt.Sprintf("dgram,id=b,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s", local, remote),
		"-device", "virtio-net-pci,netdev=b,mac=52:54:00:00:00:0b,romfile=",
	}, ours
}

// run runs a shell command line in a guest.
func (g *guests) run(i int, format string, args ...any) (string, error) {
	ctx, cancel := context.WithTimeout(g.t.Context(), time.Minute)
	defer cancel()
	out, err := g.guest[i].CommandContext(ctx, "sh", "-c", fmt.Sprintf(format, args...)).CombinedOutput()
	return string(out), err
}

// output runs a command line that must succeed.
func (g *guests) output(i int, format string, args ...any) string {
	g.t.Helper()
	out, err := g.run(i, format, args...)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", fmt.Sprintf(format, args...), err, out)
	}
	return out
}

// reaches reports whether the first guest reaches the second with packets of a
// size.
func (g *guests) reaches(size int) bool {
	_, err := g.run(0, "ping -q -c 3 -i 0.1 -w 2 -s %d 10.8.1.2", size)
	return err == nil
}

// capture starts the capture of a port.
func (g *guests) capture(port string) *fabric.Capture {
	g.t.Helper()
	f, err := os.Create(filepath.Join(g.dir, port+".pcap"))
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Cleanup(func() {
		if err := f.Close(); err != nil {
			g.t.Error(err)
		}
	})
	var c *fabric.Capture
	g.loop.Run(func() { c, err = g.sw.Capture(f, port) })
	if err != nil {
		g.t.Fatal(err)
	}
	return c
}

// TestGuests checks that two guests reach each other through the switch except
// while it drops packets or a link is down. The counters match, and tcpdump
// finds the packets in the captures.
func TestGuests(t *testing.T) {
	g := startGuests(t)
	captures := []*fabric.Capture{g.capture("a"), g.capture("b")}
	if !g.reaches(100) {
		t.Fatal("the guests do not reach each other")
	}
	var id int
	g.loop.Run(func() {
		var err error
		fault := fabric.Fault{Action: fabric.Drop, Port: "a", Match: fabric.Match{EtherType: 0x0800}}
		if id, err = g.sw.AddFault(fault); err != nil {
			t.Error(err)
		}
	})
	if g.reaches(200) {
		t.Error("the guests reach each other although everything is dropped")
	}
	g.loop.Run(func() {
		a, hit := g.sw.Ports()[0].Counters, g.sw.Faults()[0].Hit
		if a.Dropped < 3 || a.Dropped != hit {
			t.Errorf("%d packets were dropped, the fault hit %d", a.Dropped, hit)
		}
		if err := g.sw.RemoveFault(id); err != nil {
			t.Error(err)
		}
		if err := g.sw.SetLink("b", false); err != nil {
			t.Error(err)
		}
	})
	if g.reaches(300) {
		t.Error("the guests reach each other over a link that is down")
	}
	g.loop.Run(func() {
		if err := g.sw.SetLink("b", true); err != nil {
			t.Error(err)
		}
	})
	if !g.reaches(400) {
		t.Error("the guests do not reach each other after the faults")
	}
	g.loop.Run(func() {
		for _, c := range captures {
			if err := c.Stop(); err != nil || c.Frames() == 0 {
				t.Errorf("capture of %d frames: %v", c.Frames(), err)
			}
		}
	})
	for _, c := range []struct {
		port           string
		size, requests int
		replies        bool
	}{
		{"a", 100, 3, true}, {"a", 200, 3, false}, {"a", 300, 3, false}, {"a", 400, 3, true},
		{"b", 100, 3, true}, {"b", 200, 0, false}, {"b", 300, 0, false}, {"b", 400, 3, true},
	} {
		shown := g.output(1, "tcpdump -Z root -nn -r /share/%s.pcap 'icmp and greater %d and less %d'", c.port, c.size+42,
			c.size+42)
		requests, replies := strings.Count(shown, "ICMP echo request"), strings.Count(shown, "ICMP echo reply")
		if requests < c.requests || c.requests == 0 && requests > 0 || replies > 0 != c.replies {
			t.Errorf("tcpdump of %s: %d requests of %d bytes and %d replies:\n%s", c.port, requests, c.size, replies, shown)
		}
	}
}
