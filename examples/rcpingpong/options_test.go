package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/uverbs"
)

func TestOptions(t *testing.T) {
	changed := func(f func(*options)) *options {
		o := defaults()
		f(o)
		return o
	}
	for _, c := range []struct {
		args string
		want *options
	}{
		{"", defaults()},
		{"host", changed(func(o *options) { o.host = "host" })},
		{"-p 7 -d rxe0 -i 2 -s 64 -m 4096 -r 9 -n 5 -l 3 -e -g 1 -c -N host", &options{host: "host", tcpPort: 7,
			device: "rxe0", ibPort: 2, size: 64, mtu: uverbs.MTU4096, rxDepth: 9, iters: 5, sl: 3, events: true, gidIndex: 1,
			check: true, newSend: true}},
		{"--port=7 --ib-dev=rxe0 --ib-port=2 --size=64 --mtu=4096 --rx-depth=9 --iters=5 --sl=3 --events --gid-idx=1 --chk" +
			" --new_send host", &options{host: "host", tcpPort: 7, device: "rxe0", ibPort: 2, size: 64, mtu: uverbs.MTU4096,
			rxDepth: 9, iters: 5, sl: 3, events: true, gidIndex: 1, check: true, newSend: true}},
		{"host -ecs64", changed(func(o *options) { o.host, o.events, o.check, o.size = "host", true, true, 64 })},
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
	for _, c := range []struct{ args, want string }{
		{"-m 1500", "1500 is no path MTU: give 256, 512, 1024, 2048 or 4096"},
		{"-p 65536", `"65536" is no number from 0 to 65535`},
		{"-s 0", `"0" is no number from 1`},
		{"-g -1", `"-1" is no number from 0 to 255`},
		{"-o", "goverbs does not do on-demand paging yet"},
		{"-O", "implicit on-demand paging"},
		{"-P", "prefetching"},
		{"-t", "completion timestamps"},
		{"-j", "device memory"},
		{"one two", "one host at most"},
		{"-U", "unknown option -U"},
	} {
		_, err := parseOptions(strings.Fields(c.args))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
	if _, err := parseOptions([]string{""}); err == nil {
		t.Error("an empty host was taken")
	}
}

func TestUsage(t *testing.T) {
	var b strings.Builder
	if err := usage(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rcpingpong <host>", "  -p, --port=<port>      listen on", "  -e, --events           sleep on"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
