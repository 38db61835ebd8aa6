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
		o := &options{Options: udtest.Defaults(), group: "239.1.2.3"}
		change(o)
		return o
	}
	for _, c := range []struct {
		args string
		want *options
	}{
		{"-m 239.1.2.3", with(func(*options) {})},
		{"-m 239.1.2.3 -s -b 10.9.0.1", with(func(o *options) { o.sender, o.bind = true, "10.9.0.1" })},
		{"-sm239.1.2.3 -c 3 -C 5 -S 64 -p 0x2", with(func(o *options) {
			o.sender, o.Connections, o.Count, o.Size, o.PortSpace = true, 3, 5, 64, cm.PSIPoIB
		})},
		{"-so -m 239.1.2.3", with(func(o *options) { o.sender, o.sendOnly = true, true })},
		{"-M ff12::1 -b fd00::1", with(func(o *options) { o.group, o.unmapped, o.bind = "ff12::1", true, "fd00::1" })},
		{"-M 0 -b fd00::1", with(func(o *options) { o.group, o.unmapped, o.bind = "::", true, "fd00::1" })},
		{"-M ff12::1 -m 239.1.2.3", with(func(*options) {})},
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
		{"", "no group: give its address with -m"},
		{"-s", "no group: give its address with -m"},
		{"239.1.2.3", `unexpected argument "239.1.2.3": give the group with -m`},
		{"-M ff12::1", "unmapped multicast address requires binding to source address: give -b"},
		{"-m 239.1.2.3 -o", "add -s, or omit -o"},
		{"-m 239.1.2.3 -l", "omit the option"},
		{"-m 239.1.2.3 -p 1", "use 0x111 for UDP or 0x2 for IPoIB"},
		{"-U", "unknown option -U"},
	} {
		_, err := parseOptions(strings.Fields(c.args))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
}

func TestRole(t *testing.T) {
	for _, o := range []options{{}, {sender: true}} {
		if want := map[bool]string{false: "server", true: "client"}[o.sender]; o.role() != want {
			t.Errorf("sender %v is %q, want %q", o.sender, o.role(), want)
		}
	}
}

func TestHelp(t *testing.T) {
	var b strings.Builder
	if err := run(t.Context(), []string{"-h"}, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  mckey -m multicast_address -s ", "  -m <multicast_address> the group",
		"  -o                     join as a send-only"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}
