package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Each end has its own device and options, and perftest gets an option for an IPv6
// address.
func TestEnds(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	h := &fake{func(args []string) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if args[0] != "sh" {
			ran = append(ran, strings.Join(args, " "))
		}
		return latency, nil
	}}
	b := &bench{rounds: 1, messages: 200, tests: regexp.MustCompile(""),
		options: options{
			server:       "s",
			client:       "c",
			address:      "fd00::1",
			device:       "mlx5_1",
			serverDevice: "mlx5_0",
			args:         "-x 3",
			serverArgs:   "-x 5",
		}}
	if err := b.check(); err != nil {
		t.Fatal(err)
	}
	m := b.hosts()
	m.server, m.client, m.programs = h, h, map[string][2]string{"bench/goverbs-perftest": {"/s/go", "/c/go"}}
	b.play(t.Context(), m, "hosts", games([]string{"send_lat"}, []int{64}, 200))
	slices.Sort(ran)
	want := []string{
		"/c/go send_lat -x 3 --ipv6-addr -s 64 -n 1000 -H -F -d mlx5_1 -p 18516 fd00::1",
		"/s/go send_lat -x 5 --ipv6-addr -s 64 -n 1000 -H -F -d mlx5_0 -p 18516",
		"ib_send_lat -x 3 --ipv6-addr -s 64 -n 1000 -H -F -d mlx5_1 -p 18517 fd00::1",
		"ib_send_lat -x 5 --ipv6-addr -s 64 -n 1000 -H -F -d mlx5_0 -p 18517",
	}
	if !slices.Equal(ran, want) {
		t.Errorf("ran\n%s", strings.Join(ran, "\n"))
	}
	b.options.serverArgs = "-x -1"
	if err := b.check(); err == nil || !strings.Contains(err.Error(), "-server-args") {
		t.Error(err)
	}
}

func TestDescribe(t *testing.T) {
	for _, c := range []struct {
		server, client surveyed
		want           string
	}{
		{surveyed{device: "a (x), Linux 1"}, surveyed{device: "a (x), Linux 1"}, "two hosts, each with a (x), Linux 1"},
		{surveyed{device: "b (x), Linux 1"}, surveyed{device: "a (x), Linux 1"},
			"two hosts, a (x), Linux 1; the server's is b"},
		{surveyed{device: "a (y), Linux 2"}, surveyed{device: "a (x), Linux 1"},
			"two hosts, a (x), Linux 1; the server's is a (y), Linux 2"},
		{surveyed{device: "a", perftest: "6.20"}, surveyed{device: "a", perftest: "6.24", cpus: "0-3"},
			"two hosts, each with a; the server's perftest is 6.20; programs run on the CPUs near the device (0-3)"},
	} {
		if got := describe(c.server, c.client); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A few ports are used in turn.
func TestPorts(t *testing.T) {
	m := &machine{port: firstPort}
	seen := map[int]int{}
	for range 300 {
		seen[m.next()]++
	}
	if len(seen) != lastPort-firstPort+1 || seen[firstPort] != 3 || seen[lastPort] != 3 {
		t.Error(seen)
	}
}

// Programs run with sudo and on the CPUs near a device if requested, and ip and rdma are
// in their PATH.
func TestRemoteHow(t *testing.T) {
	r := pretend(t, map[string]string{"sudo": `[ "$1" = -n ] && shift && BY=sudo exec "$@"`,
		"taskset": `ON="$2"; shift 2; export ON; exec "$@"`})
	r.sudo, r.cpus = true, "0-3"
	if out, err := r.run(t.Context(), "sh", "-c", `echo "$BY $ON $PATH"`); err != nil ||
		!strings.HasPrefix(out, "sudo 0-3 ") || !strings.HasSuffix(out, ":/usr/sbin:/sbin\n") {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := r.run(t.Context(), "sh", "-c", ": of\n: lines; exit 3", "argument"); err == nil ||
		!strings.HasPrefix(err.Error(), "somewhere: sh -c … argument: exit status 3") {
		t.Error(err)
	}
}

// A C program and our program of the same name are different files.
func TestNamesakes(t *testing.T) {
	r := pretend(t, map[string]string{"cc": `while [ "$1" != -o ]; do shift; done; echo C >"$2"`})
	r.dir = t.TempDir()
	file := filepath.Join(t.TempDir(), "objects")
	for _, name := range []string{file, file + ".c"} {
		if err := os.WriteFile(name, []byte("Go\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ours, err := r.install(t.Context(), file)
	if err != nil {
		t.Fatal(err)
	}
	inC, _, err := r.compile(t.Context(), file+".c")
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{ours: "Go\n", inC: "C\n"} {
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v, want %q", path, text, err, want)
		}
	}
}

// The ssh connection to a host ends with the run.
func TestLeave(t *testing.T) {
	r := pretend(t, map[string]string{})
	r.dir, r.control = t.TempDir(), filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(r.control, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ssh, err := exec.LookPath("ssh")
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\nif echo \"$*\" | grep -q -- \"ControlPath=" + r.control + " .*-O exit somewhere\"; then rm " +
		r.control + "; else for s; do :; done; exec sh -c \"$s\"; fi\n"
	if err := os.WriteFile(ssh, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := r.leave(context.Background()); err != nil {
		t.Error(err)
	}
	for _, gone := range []string{r.dir, r.control} {
		if _, err := os.Stat(gone); err == nil {
			t.Errorf("%s is still there", gone)
		}
	}
}
