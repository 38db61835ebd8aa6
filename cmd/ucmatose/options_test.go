package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/getopt"
)

func TestOptions(t *testing.T) {
	changed := func(f func(*options)) *options {
		o := defaults()
		f(o)
		return o
	}
	tos, timeout := uint8(32), uint8(17)
	for _, c := range []struct {
		args string
		want *options
	}{
		{"", defaults()},
		{"-s host -b own -f ip -P ib -c 3 -C 20 -S 200 -t 0x20 -p 7 -m -a 17", &options{server: "host", bind: "own",
			format: cm.NumericHost, portSpace: cm.PSIB, connections: 3, count: 20, size: 200, tos: &tos, port: "7",
			migrate: true, ackTimeout: &timeout}},
		{"-fIPv6 -PTCP", changed(func(o *options) { o.format = cm.NumericHost })},
		{"-f ip -f name", defaults()},
		{"-C 010", defaults()},
		{"-f gid -b fe80::1 --dlid 0x2", changed(func(o *options) { o.gid, o.bind, o.dlid = true, "fe80::1", 2 })},
		{"-S 0", changed(func(o *options) { o.size, o.count = 0, 0 })},
	} {
		got, err := parseOptions(strings.Fields(c.args))
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if d := cmp.Diff(c.want, got, cmp.AllowUnexported(options{})); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.args, d)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	for args, want := range map[string]string{
		"-f gid":   "-f gid requires the local GID: give it with -b",
		"--dlid 1": "--dlid requires GIDs: add -f gid",
		"-f hex":   `unknown address format "hex": use name, ip, ipv6 or gid`,
		"-P udp":   `unknown port space "udp": use tcp or ib`,
		"-c 0":     `option -c: "0" is not a number from 1`,
		"-C many":  `option -C: "many" is not a number from 0`,
		"-t 256":   `option -t: "256" is not a number from 0 to 255`,
		"-a 32":    `option -a: "32" is not a number from 0 to 31`,
		"10.9.0.1": `unexpected argument "10.9.0.1": give the server with -s`,
	} {
		_, err := parseOptions(strings.Fields(args))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", args, err, want)
		}
	}
	if _, err := parseOptions([]string{"-h"}); !errors.Is(err, getopt.ErrHelp) {
		t.Errorf("-h: error %v", err)
	}
}

func TestUsage(t *testing.T) {
	var b strings.Builder
	if err := run(t.Context(), []string{"-h"}, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"usage: ucmatose\n", "\n  -s <server_address>    connect to",
		"\n  -m                     migrate"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
