//go:build vm && soak

package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/bench/results"
	"github.com/goverbs/goverbs/testbed/connectx"
	"github.com/goverbs/goverbs/testbed/connectx/world"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// TestSoakTwoHosts runs the comparison of two hosts as a user would, on two guests that
// are reached with ssh. Each has a software ConnectX with a different name.
func TestSoakTwoHosts(t *testing.T) {
	t.Chdir("..")
	twoHosts(t)
	out := filepath.Join(t.TempDir(), "hosts.json")
	compare := func(address, tests string, rounds int) results.Run {
		t.Helper()
		b := &bench{
			rounds:   rounds,
			messages: 200,
			options: options{out: out, only: "hosts", tests: tests, server: "server", client: "client",
				address: address, device: "mlx5_2", serverDevice: "mlx5_1"},
		}
		if err := b.all(t.Context()); err != nil && len(b.run.Failures) == 0 {
			t.Fatal(err)
		}
		for _, f := range b.run.Failures {
			// C's send_lat -e, here, posts a third SEND to a queue that still holds two:
			// woken, it looks once for a completion, and goes on without.
			if f.What != "send_lat -e, 64, round 1" || !strings.Contains(f.Why, "Couldn't post send") {
				t.Errorf("%s, %s: %s", f.Part, f.What, f.Why)
			}
		}
		return b.run
	}
	r := compare("10.8.0.1", "", 1)
	for _, test := range []string{"objects", "cmtime", "requests", results.ManyQPs, "send_lat", "read_bw",
		"write_bw -l 32"} {
		if len(r.Of("hosts", test, "")) == 0 {
			t.Errorf("no figure of %s", test)
		}
	}
	md := strings.TrimSuffix(out, ".json") + ".md"
	if text, err := exec.CommandContext(t.Context(), "go", "run", "-C", "..", "./bench/report",
		out, md).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	var page strings.Builder
	for _, name := range []string{md, filepath.Join(filepath.Dir(md), "evidence", filepath.Base(md))} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		page.Write(text)
	}
	for _, want := range []string{"two hosts, mlx5_2 (", "; the server's is mlx5_1 |", "### Two hosts, time",
		"#### Latency, ratios of p50", "#### Connecting", "charts/typical-hosts-send_lat.svg"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, page.String())
		}
	}
	if r := compare("fd00::1", "^write_(lat|bw)/64$", 1); len(r.Series) == 0 {
		t.Error("no figure of IPv6")
	}
}

// twoHosts boots two guests that ssh finds as server and client during the test.
func twoHosts(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	set, err := bed.Ensure(t.Context(), os.Stderr, bed.SSH)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := set.Tree(bed.SSH)
	if err != nil {
		t.Fatal(err)
	}
	must("cp", "-r", filepath.Join(tree, "usr"), dir)
	must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, "key"))
	w := world.StartTest(t, world.Config{Devices: 2, LinkLayer: connectx.Ethernet})
	var config string
	var mu sync.Mutex
	var booting sync.WaitGroup
	for i, socket := range w.Sockets() {
		name := []string{"server", "client"}[i]
		booting.Go(func() {
			g := vm.Start(t, vm.Config{Kernel: "6.12", Root: true, CPUs: 1, Share: dir, VFIOUser: []string{socket},
				Modules: []string{"mlx5_ib", "rdma_ucm"}})
			if out, err := g.CommandContext(t.Context(), "timeout", "60", "sh", "-e", "-c", setUp,
				fmt.Sprint(i+1)).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			mu.Lock()
			defer mu.Unlock()
			config += fmt.Sprintf("Host %s\n\tHostName 127.0.0.1\n\tPort %d\n\tHostKeyAlias %[1]s\n", name, sshd(t, g))
		})
	}
	booting.Wait()
	if t.Failed() {
		t.FailNow()
	}
	config += fmt.Sprintf("Host *\n\tUser root\n\tIdentityFile %s/key\n\tIdentitiesOnly yes\n"+
		"\tUserKnownHostsFile %[1]s/known\n\tStrictHostKeyChecking accept-new\n", dir)
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"config": config, "ssh": "#!/bin/sh\nexec " + ssh + " -F " + dir +
		"/config \"$@\"\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// setUp prepares the device of guest number $0, and what its ssh server needs: a home
// directory with the client's key, a shell that is in /etc/shells, and a host key. Cc is
// tcc.
const setUp = `export LD_LIBRARY_PATH=/share/usr/lib/x86_64-linux-gnu
mount -t tmpfs -o mode=700 none /root
mkdir -m 700 /root/.ssh
cat /share/key.pub >/root/.ssh/authorized_keys
sed 's#/bin/bash#/bin/sh#' /etc/passwd >/tmp/passwd
mount --bind /tmp/passwd /etc/passwd
/share/usr/bin/dropbearkey -t ed25519 -f /tmp/hostkey
cp -a /usr/sbin /tmp/sbin
ln -s /usr/bin/tcc /tmp/sbin/cc
mount --bind /tmp/sbin /usr/sbin
ip link set lo up
i=$(ls /sys/class/infiniband/mlx5_0/device/net)
ip addr add 10.8.0.$0/24 dev $i
ip addr add fd00::$0/64 dev $i nodad
ip link set $i up
rdma dev set mlx5_0 name mlx5_$0
until grep -q ACTIVE /sys/class/infiniband/mlx5_$0/ports/1/state; do sleep 0.1; done
/share/usr/sbin/dropbear -E -r /tmp/hostkey -p 127.0.0.1:22 >/tmp/sshd.log 2>&1 </dev/null`

// sshd starts a guest's ssh server and forwards a port of this machine to it.
func sshd(t *testing.T, g *vm.Guest) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Error(err)
		return 0
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	t.Cleanup(func() { cancel(); l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // it is closed
			}
			serving.Go(func() {
				defer conn.Close()
				c := g.CommandContext(ctx, "busybox", "nc", "127.0.0.1", "22")
				c.Stdin, c.Stdout = conn, conn
				if err := c.Run(); err != nil && ctx.Err() == nil {
					t.Log("a connection to the guest's ssh server:", err)
				}
			})
		}
	})
	return l.Addr().(*net.TCPAddr).Port
}
