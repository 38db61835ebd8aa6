package rping

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/getopt"
)

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		args string
		want options
	}{
		{"-s", options{server: true, port: 7174, size: 64}},
		{"-c -a host", options{host: "host", port: 7174, size: 64}},
		{"-c -s", options{server: true, port: 7174, size: 64}}, // the last one applies
		{"-svVdPq -a ::0 -p 7 -S 23 -C 3 -I x",
			options{server: true, verbose: true, validate: true, debug: true, persistent: true,
				ownQP: true, host: "::0", port: 7, size: 23, count: 3, source: "x"}},
		{"-cvVdqP -a10.9.0.1 -I 10.9.0.2 -S65535 -C010", options{verbose: true, validate: true, debug: true, persistent: true,
			ownQP: true, host: "10.9.0.1", source: "10.9.0.2", port: 7174, size: 65535, count: 10}},
	} {
		got, err := parseOptions(strings.Fields(c.args))
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if d := cmp.Diff(&c.want, got, cmp.AllowUnexported(options{})); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.args, d)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":              "neither server nor client: use -s or -c",
		"-v":            "neither server nor client",
		"-c":            "no server: give its address with -a",
		"-s -S 22":      `option -S: "22" is not a number from 23 to 65535`,
		"-s -S 65536":   `option -S: "65536" is not a number from 23 to 65535`,
		"-s -C -1":      `option -C: "-1" is not a number from 0`,
		"-s -p 65536":   `option -p: "65536" is not a number from 0 to 65535`,
		"-s -t 1":       "unknown option -t",
		"-c 10.9.0.1":   `unexpected argument "10.9.0.1": give the address with -a`,
		"-c --server=1": "unknown option --server",
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
	for _, want := range []string{"rping -c [-vVdq] ", "\n  -c                     client side\n",
		"\n  -S <size>              ping data size, 23 to 65535"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestShow(t *testing.T) {
	var b strings.Builder
	for _, text := range []string{"ab\x00cd", "ab", ""} {
		if err := show(&b, "ping data", []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if want := "ping data: ab\nping data: ab\nping data: \n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}
