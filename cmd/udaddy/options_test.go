package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/udtest"
)

func TestOptions(t *testing.T) {
	with := func(change func(*options)) *options {
		o := &options{Options: udtest.Defaults()}
		change(o)
		return o
	}
	for _, c := range []struct {
		args string
		want *options
	}{
		{"", with(func(*options) {})},
		{"-s host", with(func(o *options) { o.server = "host" })},
		{"-b ::0 -c 3 -C 5 -S 64", with(func(o *options) { o.bind, o.Connections, o.Count, o.Size = "::0", 3, 5, 64 })},
		{"-c010", with(func(o *options) { o.Connections = 10 })}, // atoi
		{"-t 0x20", with(func(o *options) { o.setTOS, o.tos = true, 32 })},
		{"-t 0", with(func(o *options) { o.setTOS = true })},
		{"-p 0x2", with(func(o *options) { o.PortSpace = cm.PSIPoIB })},
		{"-P IPoIB", with(func(o *options) { o.PortSpace = cm.PSIPoIB })},
		{"-p 2 -P udp", with(func(*options) {})},
		{"-f ipv6", with(func(o *options) { o.numeric = true })},
		{"-f ip -f name", with(func(*options) {})},
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
		{"host", `unexpected argument "host": give the server's address with -s`},
		{"-s", "option -s needs an argument"},
		{"-c 0", `"0" is not a number from 1`},
		{"-C -1", `"-1" is not a number from 0`},
		{"-p 0x106", "0x106 is not a port space for datagrams: use 0x111 for UDP or 0x2 for IPoIB"},
		{"-P tcp", "use udp or ipoib"},
		{"-f gid", "give an IP address"},
		{"-f mac", "use name, ip or ipv6"},
		{"-t 256", `"256" is not a number from 0 to 255`},
		{"-U", "unknown option -U"},
	} {
		_, err := parseOptions(strings.Fields(c.args))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestHints(t *testing.T) {
	o, err := parseOptions([]string{"-f", "ip", "-P", "ipoib"})
	if err != nil {
		t.Fatal(err)
	}
	if h := o.hints(); h.Flags != cm.NumericHost || h.PortSpace != cm.PSIPoIB {
		t.Errorf("%+v", h)
	}
}

func TestHelp(t *testing.T) {
	var b strings.Builder
	if err := run(t.Context(), []string{"-h"}, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  udaddy -s server_address ", "  -s <server_address>    the server's name",
		"  -C <message_count>     datagrams"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
