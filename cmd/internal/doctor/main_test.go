package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/cmd/internal/doctor/summary"
	"github.com/goverbs/goverbs/internal/version"
)

func TestRun(t *testing.T) {
	broken := newFake(t)
	broken.remove("sys/class/misc/rdma_cm")
	for _, c := range []struct {
		f      *fake
		args   string
		status int
		out    string // contained in the output
		err    string // contained in the error
	}{
		{newFake(t), "", healthy, "RDMA works.\n", ""},
		{newFake(t), "-v", healthy, "OK       Linux 6.12.1\n", ""},
		{newFake(t), "-a 192.0.2.1", healthy, "for 192.0.2.1, mlx5_0 port 1 is used, with GID index 2", ""},
		{newFake(t), "-version", healthy, "doctor " + version.Read().String() + "\n", ""},
		{newFake(t), "-h", healthy, "usage: doctor [options] [peer...]", ""},
		{newFake(t), "127.0.0.1 -p 1", failed, "", `unexpected argument "-p": give options before peers`},
		{newFake(t), "-p 1 127.0.0.1", faulty, "fix: doctor -listen", ""},
		{newFake(t), "-p 1 -json 127.0.0.1", faulty, `"peer": "127.0.0.1"`, ""},
		{newFake(t), "-p 1 127.0.0.1 127.0.0.2", faulty, "Peer 127.0.0.2:\n", ""},
		{broken, "", faulty, "fix: modprobe rdma_ucm\nOK", ""},
		{newFake(t), "-x", failed, "", "-x"},
		{newFake(t), "-p 0", failed, "", "port 0 is out of range"},
		{newFake(t), "-a host", failed, "", "give an IP address"},
		{newFake(t), "-summary", failed, "", "-summary needs files"},
		{newFake(t), "-html", failed, "", "-html needs -summary"},
		{newFake(t), "-summary /no/such/file", failed, "", "no such file"},
		{newFake(t), "-summary /dev/null", faulty, "RDMA works on 0 of 1 machines", ""},
		{newFake(t), "-listen host", failed, "", "give no peer with -listen"},
	} {
		var out strings.Builder
		status, err := run(t.Context(), &check.System{Root: c.f.root, Kernel: c.f}, strings.Fields(c.args), &out)
		text := ""
		if err != nil {
			text = err.Error()
		}
		if status != c.status || !strings.Contains(out.String(), c.out) || (err != nil) != (c.err != "") ||
			!strings.Contains(text, c.err) {
			t.Errorf("doctor %s: status %d, %v\n%s", c.args, status, err, &out)
		}
	}
}

// TestPod checks that a pod is taken for a container by its environment, if the token of its account is not mounted.
func TestPod(t *testing.T) {
	f := newFake(t)
	f.limits[unix.RLIMIT_MEMLOCK] = 8 << 20
	if got := find(t, f.run(check.Request{}), "memlock"); got.Severity != check.Warning {
		t.Errorf("outside of a pod: %+v", got)
	}
	f.write("proc/self/environ", "PATH=/bin\x00KUBERNETES_SERVICE_HOST=192.0.2.10\x00HOME=/\x00")
	find(t, f.run(check.Request{}), "memlock-container")
	f.write("proc/self/environ", "PATH=/bin\x00X=KUBERNETES_SERVICE_HOST=192.0.2.10\x00")
	find(t, f.run(check.Request{}), "memlock")
}

// TestJSON checks that a program reads what doctor writes.
func TestJSON(t *testing.T) {
	f := newFake(t)
	f.remove("sys/class/misc/rdma_cm")
	var out strings.Builder
	status, err := run(context.Background(), &check.System{Root: f.root, Kernel: f}, []string{"-json"}, &out)
	if status != faulty || err != nil {
		t.Fatal(status, err)
	}
	var r report
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	got := find(t, r.Findings, "no-rdma-cm")
	if r.Healthy || got.Severity != check.Error || got.Fix != "modprobe rdma_ucm" {
		t.Errorf("%+v", r)
	}
	v := version.Read()
	if want := (check.Origin{Version: v.Version, Commit: v.Commit, Host: "node-7", Kernel: "6.12.1",
		Arch: runtime.GOARCH}); r.Origin != want || v.Version == "" {
		t.Errorf("origin %+v, want %+v", r.Origin, want)
	}
	if err := new(check.Severity).UnmarshalText([]byte("fatal")); err == nil {
		t.Error("an unknown severity is accepted")
	}
}

// TestAllPairs runs doctor with the same list on each of three machines, which know themselves by name or address, and
// reads the documents of all. Only the peers' order differs. No peer listens.
func TestAllPairs(t *testing.T) {
	addr := map[string]netip.Addr{"a": netip.MustParseAddr("127.0.0.1"), "b": netip.MustParseAddr("127.0.0.2")}
	var files []string
	for _, c := range []struct{ host, order string }{
		{"a", "127.0.0.2 127.0.0.3 127.0.0.1"}, {"b", "127.0.0.3 127.0.0.1 127.0.0.2"},
		{"c", "127.0.0.1 127.0.0.2 127.0.0.3"},
	} {
		f := newFake(t)
		f.write("proc/sys/kernel/hostname", c.host)
		f.addrs = maps.Clone(f.addrs)
		f.addrs["lo"] = []netip.Addr{addr[c.host]}
		var out bytes.Buffer
		status, err := run(t.Context(), &check.System{Root: f.root, Kernel: f},
			strings.Fields("-p 1 -json 127.0.0.1 127.0.0.2 127.0.0.3"), &out)
		if status != faulty || err != nil {
			t.Fatal(status, err)
		}
		file := filepath.Join(t.TempDir(), c.host+".json")
		if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
		var order []string
		for d := json.NewDecoder(&out); d.More(); {
			var r report
			if err := d.Decode(&r); err != nil {
				t.Fatal(err)
			}
			find(t, r.Findings, "peer-tcp")
			order = append(order, r.Peer)
		}
		if got := strings.Join(order, " "); got != c.order {
			t.Errorf("%s: the order is %s, want %s", c.host, got, c.order)
		}
	}
	s, err := summary.Read(files)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(s.Verdict(), "between 0 of 9 pairs.") {
		t.Error(s.Verdict())
	}
}

// TestIs checks what a machine is called in the lists of peers.
func TestIs(t *testing.T) {
	f := newFake(t)
	s := &check.System{Root: f.root, Kernel: f}
	for host, want := range map[string]bool{"node-7": true, "Node-7.example.com": true, "192.0.2.1": true,
		"::ffff:192.0.2.1": true, "node-70": false, "192.0.2.9": false, "": false, ".": false} {
		if got := s.Is(host); got != want {
			t.Errorf("%q: %v", host, got)
		}
	}
}

// TestInterruptedPeers checks that an interrupt ends a list of peers, and that doctor says so.
func TestInterruptedPeers(t *testing.T) {
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	status, err := run(ctx, &check.System{Root: f.root, Kernel: f}, []string{"-json", "127.0.0.1", "127.0.0.2"}, &out)
	if status != failed || !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 of 2 peers") {
		t.Errorf("status %d, %v", status, err)
	}
}
