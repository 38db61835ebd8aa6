package perftest

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// TestGroups checks which end receives from which group.
func TestGroups(t *testing.T) {
	const group = "ff01:0:2:c985::"
	for _, c := range []struct{ command, server, client string }{
		{"send_bw -g", group, ""},
		{"send_lat -g", group, "ff01:0:2:c985::1"},
		{"send_lat -g -M 255:0x0e:0:0:0:0:0:0:0:0:255:255:239:1:2:3", "ff0e::ffff:ef01:203", "ff0e::ffff:ef01:203"},
		{"send_bw -c UD", "", ""},
	} {
		f := strings.Fields(c.command)
		for _, end := range []struct{ host, want string }{{"", c.server}, {"host", c.client}} {
			o := normalized(t, f[0], f[1:]...)
			o.Server = end.host
			got := ""
			if o.receivesGroup(o.client()) {
				got = o.group().Addr().String()
			}
			if got != end.want || o.Type != uverbs.UD {
				t.Errorf("%s %s: %q, want %q; %v", c.command, end.host, got, end.want, o.Type)
			}
		}
	}
	bw, lat := normalized(t, "send_bw", "-g", "host"), normalized(t, "send_lat", "-g")
	for _, o := range []*Options{bw, lat} {
		if err := o.checkGroup(keys{qpn: multicastQPN}); err != nil {
			t.Error(err)
		}
		if err := o.checkGroup(keys{qpn: 17}); err == nil || !strings.Contains(err.Error(), "give -g to both ends") {
			t.Error(err)
		}
	}
	bw.Server = "" // the client sends from its QP
	if err := bw.checkGroup(keys{qpn: 17}); err != nil {
		t.Error(err)
	}
	bw.link = uverbs.LinkInfiniBand
	if err := bw.fitGroup(nil); err == nil || !strings.Contains(err.Error(), "the subnet manager has to create") {
		t.Error(err)
	}
}

// TestNothingFromGroup checks the error of a group whose datagrams do not arrive.
func TestNothingFromGroup(t *testing.T) {
	for args, want := range map[string]string{
		"-M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3": "ip addr add 239.1.2.3/32 dev INTERFACE autojoin",
		"": "no datagram of the group ff01:0:2:c985:: has arrived",
	} {
		o := normalized(t, "send_bw", append(strings.Fields(args), "-g")...)
		v := newWatchdog(t.Context(), &stateWire{pending: 108}, o, 64, 100, nil)
		v.lastMove = time.Now().Add(-time.Minute)
		if err := v.checkProgress(0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
		v.lastMove = time.Now().Add(-time.Minute)
		if err := v.checkProgress(7); err != nil {
			t.Errorf("%s, after 7 messages: %v", args, err)
		}
		v.stop()
	}
}

// TestIsIPv4 checks the GIDs that are addresses of IPv4, also in the form that groups have with RoCE v1.
func TestIsIPv4(t *testing.T) {
	for text, want := range map[string]bool{"::ffff:192.0.2.1": true, "::ffff:239.1.2.3": true,
		"ff0e::ffff:239.1.2.3": true,
		"ff0e::239.1.2.3":      false, "ff01:0:2:c985::": false, "fe80::1": false, "ff02::ffff:239.1.2.3": false} {
		if got := isIPv4(uverbs.GIDFromAddr(netip.MustParseAddr(text))); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
