package pingpong

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/goverbs/goverbs/internal/getopt"
	"github.com/goverbs/goverbs/uverbs"
)

func parse(args ...string) (*Options, error) {
	o := Defaults("test", 4096)
	return o, o.parse(args,
		append(o.Common(), o.PathMTU(), Unsupported('t', "ts", "get CQE with timestamp", "completion timestamps")))
}

func TestOptions(t *testing.T) {
	changed := func(f func(*Options)) *Options {
		o := Defaults("test", 4096)
		f(o)
		return o
	}
	all := &Options{Name: "test", Host: "host", TCPPort: 7, Device: "rxe0", IBPort: 2, Size: 64,
		MTU: uverbs.MTU4096, RxDepth: 9,
		Iters: 5, SL: 3, Events: true, GIDIndex: 1, Check: true}
	for _, c := range []struct {
		args string
		want *Options
	}{
		{"", Defaults("test", 4096)},
		{"host", changed(func(o *Options) { o.Host = "host" })},
		{"-p 7 -d rxe0 -i 2 -s 64 -m 4096 -r 9 -n 5 -l 3 -e -g 1 -c host", all},
		{"--port=7 --ib-dev=rxe0 --ib-port=2 --size=64 --mtu=4096 --rx-depth=9 --iters=5 --sl=3 --events " +
			"--gid-idx=1 --chk host", all},
		{"host -ecs64", changed(func(o *Options) { o.Host, o.Events, o.Check, o.Size = "host", true, true, 64 })},
	} {
		got, err := parse(strings.Fields(c.args)...)
		if err != nil {
			t.Errorf("%q: %v", c.args, err)
			continue
		}
		if d := cmp.Diff(c.want, got, cmpopts.IgnoreFields(Options{}, "LocalText")); d != "" {
			t.Errorf("%q: (-want +got)\n%s", c.args, d)
		}
	}
}

func TestOptionErrors(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-m 1500", "1500 is not a path MTU: use 256, 512, 1024, 2048 or 4096"},
		{"-p 65536", `"65536" is not a number from 0 to 65535`},
		{"-s 0", `"0" is not a number from 1`},
		{"-g -1", `"-1" is not a number from 0 to 255`},
		{"-t", "this program does not support completion timestamps"},
		{"one two", "more than one host"},
		{"-U", "unknown option -U"},
	} {
		_, err := parse(strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := parse(""); err == nil {
		t.Error("an empty host was accepted")
	}
	if _, err := parse("-h"); !errors.Is(err, getopt.ErrHelp) {
		t.Errorf("-h: error %v", err)
	}
}

func TestUsage(t *testing.T) {
	var b bytes.Buffer
	o := Defaults("rcpingpong", 4096)
	if err := Run(t.Context(), o, []string{"-h"}, append(o.Common(), o.PathMTU()), nil, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  rcpingpong            start a server", "  rcpingpong <host>     connect to",
		"  -p, --port=<port>      listen on",
		"exchange (default 4096)", "  -e, --events           sleep on", "  -m, --mtu=<size>       path MTU"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
