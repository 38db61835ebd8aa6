package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// pretend returns a host that runs its programs on this machine, with some tools
// replaced.
func pretend(t *testing.T, tools map[string]string) remote {
	t.Helper()
	dir := t.TempDir()
	tools["ssh"] = `for script; do :; done; exec sh -c "$script"`
	for name, script := range tools {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return remote{name: "somewhere"}
}

// The survey reports everything that a host lacks at once.
func TestSurvey(t *testing.T) {
	r := pretend(t, map[string]string{"uname": "echo sparc64"})
	s, err := ask(t.Context(), r, "nodevice_0", "client")
	if err == nil || !strings.Contains(err.Error(), "its machine is sparc64") {
		t.Error(err)
	}
	lacks := strings.Join(s.lacks, "\n")
	for _, want := range []string{
		"ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw: install perftest",
		"the device nodevice_0",
	} {
		if !strings.Contains(lacks, want) {
			t.Errorf("no %q in %s", want, lacks)
		}
	}
	if strings.Contains(lacks, "noexec") || !strings.HasPrefix(s.dir, "/tmp/goverbs-bench.") || len(s.misses) == 0 {
		t.Errorf("%+v, %v", s, err)
	}
	r.dir = s.dir
	if err := r.leave(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(s.dir); err == nil {
		t.Errorf("%s is still there", s.dir)
	}
}

func TestSurveyed(t *testing.T) {
	for _, c := range []struct {
		out  string
		want surveyed
		err  string
	}{
		{"is x86_64\n", surveyed{arch: "amd64"}, ""},
		{"Welcome!\nin /tmp/x\nnear 0-3,8\nmisses cmtime: why\ndevice d (a, b)\nversion Version: 6.24 \nis aarch64\n",
			surveyed{arch: "arm64", dir: "/tmp/x", cpus: "0-3,8", device: "d (a, b)", perftest: "6.24",
				misses: []string{"cmtime: why"}}, ""},
		{"Welcome!\n", surveyed{}, "does its shell print something"},
		{"lacks a device\nis x86_64\n", surveyed{arch: "amd64", lacks: []string{"a device"}}, ""},
	} {
		s, err := ask(t.Context(), &fake{func([]string) (string, error) { return c.out, nil }}, "d", "server")
		if d := cmp.Diff(c.want, s, cmp.AllowUnexported(surveyed{})); d != "" || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %v, %s", c.out, err, d)
		}
	}
	r := pretend(t, map[string]string{})
	if err := os.WriteFile(filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "ssh"),
		[]byte("#!/bin/sh\necho 'Permission denied (publickey).' >&2; exit 255\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if _, err := ask(t.Context(), r, "d", "server"); !errors.As(err, &exit) ||
		!strings.Contains(err.Error(), "ssh-copy-id") || !strings.Contains(err.Error(), "Permission denied") {
		t.Error(err)
	}
}

const ipAddr = `1: lo    inet 127.0.0.1/8 scope host lo\       valid_lft forever preferred_lft forever
4: eth0    inet 10.0.0.7/24 brd 10.0.0.255 scope global eth0\       valid_lft forever preferred_lft forever
4: eth0    inet6 fe80::1/64 scope link \       valid_lft forever preferred_lft forever
`

// The possible results of connecting to the server's address.
func TestReach(t *testing.T) {
	for _, c := range []struct{ address, says, want string }{
		{"10.0.0.7", "dial tcp 10.0.0.7:1: connect: connection refused: start the server first", ""},
		{"FE80::1", "connection refused", ""},
		{"somewhere.example", "connection refused", ""},
		{"10.0.0.8", "", "-address 10.0.0.8: it is not an address of srv, which has: 127.0.0.1 10.0.0.7 fe80::1"},
		{"10.0.0.7", "dial tcp 10.0.0.7:1: i/o timeout", "let TCP ports 18515 to 18614 pass the firewalls"},
		{"10.0.0.7", "connect: no route to host", "pass the firewalls"},
		{"10.0.0.7", "no RDMA device", "no RDMA device"},
		{"10.0.0.7", "", "something listens on port 18515"},
	} {
		h := &fake{func(args []string) (string, error) {
			if args[0] == "ip" {
				return ipAddr, nil
			}
			if c.says == "" {
				return "", nil
			}
			return c.says, errors.New(c.says)
		}}
		m := &machine{
			server:   h,
			client:   h,
			address:  c.address,
			port:     firstPort,
			programs: map[string][2]string{"bench/goverbs-perftest": {"/go", "/go"}},
		}
		b := &bench{options: options{server: "srv", client: "cl"}}
		if err := b.reach(t.Context(), m); (err == nil) != (c.want == "") || err != nil &&
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %q: %v, want %q", c.address, c.says, err, c.want)
		}
	}
}

// Both hosts are checked before an error is returned, and they must have the same
// architecture.
func TestReady(t *testing.T) {
	says := func(out string) *fake { return &fake{func([]string) (string, error) { return out, nil }} }
	b := &bench{options: options{server: "srv", client: "cl"}}
	err := b.ready(t.Context(), &machine{server: says("lacks a\nlacks b\nis x86_64\n"),
		client: says("lacks c\nis x86_64\n")})
	if err == nil || err.Error() != "srv lacks a\nsrv lacks b\ncl lacks c" {
		t.Error(err)
	}
	err = b.ready(t.Context(), &machine{server: says("is x86_64\n"), client: says("is aarch64\n")})
	if err == nil || !strings.Contains(err.Error(), "srv is amd64, and cl is arm64") {
		t.Error(err)
	}
}

// An error has the status and the output of a remote program.
func TestRemoteStatus(t *testing.T) {
	r := pretend(t, map[string]string{})
	var exit *exec.ExitError
	if out, err := r.run(t.Context(), "sh", "-c", "echo said; exit 9"); !errors.As(err, &exit) || exit.ExitCode() != 9 ||
		out != "said\n" {
		t.Errorf("%q, %v", out, err)
	}
}
