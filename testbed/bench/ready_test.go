package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pretend is a host that runs its programs on this machine, with some things in
// their place.
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
	return remote{"somewhere", t.TempDir()}
}

// The survey names all that a host lacks in one go.
func TestSurvey(t *testing.T) {
	r := pretend(t, map[string]string{"uname": "echo sparc64"})
	_, err := surveyed(t.Context(), r, "nodevice_0")
	if err == nil {
		t.Fatal("nothing is lacking")
	}
	for _, want := range []string{"lacks ib_read_bw: install perftest", "lacks the device nodevice_0", "its machine is sparc64"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	for _, bad := range []string{"noexec", "can be written"} {
		if strings.Contains(err.Error(), bad) {
			t.Errorf("%q in %v", bad, err)
		}
	}
}

func TestSurveyed(t *testing.T) {
	for _, c := range []struct{ out, arch, err string }{
		{"is x86_64\n", "amd64", ""},
		{"Welcome!\nis aarch64\n", "arm64", ""},
		{"Welcome!\n", "", "does its shell print something"},
		{"lacks a device\nis x86_64\n", "amd64", "lacks a device"},
	} {
		arch, err := surveyed(t.Context(), &fake{func([]string) (string, error) { return c.out, nil }}, "d")
		if arch != c.arch || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%q: %q, %v", c.out, arch, err)
		}
	}
	r := pretend(t, map[string]string{})
	if err := os.WriteFile(filepath.Join(strings.Split(os.Getenv("PATH"), ":")[0], "ssh"), []byte("#!/bin/sh\necho 'Permission denied (publickey).' >&2; exit 255\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if _, err := surveyed(t.Context(), r, "d"); !errors.As(err, &exit) || !strings.Contains(err.Error(), "without a password") || !strings.Contains(err.Error(), "Permission denied") {
		t.Error(err)
	}
}

const ipAddr = `1: lo    inet 127.0.0.1/8 scope host lo\       valid_lft forever preferred_lft forever
4: eth0    inet 10.0.0.7/24 brd 10.0.0.255 scope global eth0\       valid_lft forever preferred_lft forever
4: eth0    inet6 fe80::1/64 scope link \       valid_lft forever preferred_lft forever
`

// What the client meets at the server's address.
func TestReach(t *testing.T) {
	for _, c := range []struct{ address, says, want string }{
		{"10.0.0.7", "dial tcp 10.0.0.7:1: connect: connection refused: start the server first", ""},
		{"FE80::1", "connection refused", ""},
		{"somewhere.example", "connection refused", ""},
		{"10.0.0.8", "", "-address 10.0.0.8: it is none of srv's, which has: 127.0.0.1 10.0.0.7 fe80::1"},
		{"10.0.0.7", "dial tcp 10.0.0.7:1: i/o timeout", "let TCP ports 18515 to 21515 pass the firewalls"},
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
		m := &machine{server: h, client: h, address: c.address, port: firstPort, programs: map[string][2]string{"bench/goverbs-perftest": {"/go", "/go"}}}
		b := &bench{options: options{server: "srv", client: "cl"}}
		if err := b.reach(t.Context(), m); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s, %q: %v, want %q", c.address, c.says, err, c.want)
		}
	}
}

// Both hosts are asked before an error ends it, and they are of one kind.
func TestReady(t *testing.T) {
	says := func(out string) *fake { return &fake{func([]string) (string, error) { return out, nil }} }
	b := &bench{options: options{server: "srv", client: "cl"}}
	err := b.ready(t.Context(), &machine{server: says("lacks a\nis x86_64\n"), client: says("lacks b\nis x86_64\n")})
	if err == nil || !strings.Contains(err.Error(), "srv: lacks a") || !strings.Contains(err.Error(), "cl: lacks b") {
		t.Error(err)
	}
	err = b.ready(t.Context(), &machine{server: says("is x86_64\n"), client: says("is aarch64\n")})
	if err == nil || !strings.Contains(err.Error(), "srv is amd64, and cl is arm64") {
		t.Error(err)
	}
}

// The status and the output of a program there are told.
func TestRemoteStatus(t *testing.T) {
	r := pretend(t, map[string]string{})
	var exit *exec.ExitError
	if out, err := r.run(t.Context(), "sh", "-c", "echo said; exit 9"); !errors.As(err, &exit) || exit.ExitCode() != 9 || out != "said\n" {
		t.Errorf("%q, %v", out, err)
	}
}
