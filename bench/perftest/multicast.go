package perftest

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/uverbs"
)

// multicastQPN is the number of the QP that a datagram to a group names.
const multicastQPN = 0xffffff

// defaultMGID is the group of the server. That of the client, if it has one, follows.
var defaultMGID = uverbs.GID{255, 1, 0, 0, 0, 2, 201, 133}

// setMGID parses the 16 bytes of a group, which colons separate.
func (o *Options) setMGID(value string) error {
	fields := strings.Split(value, ":")
	if len(fields) != len(o.MGID) {
		return fmt.Errorf("%q has %d bytes separated by colons, not %d, as in 255:1:0:0:0:2:201:133:0:0:0:0:0:0:0:0", value,
			len(fields), len(o.MGID))
	}
	for i, field := range fields {
		b, err := strconv.ParseUint(field, 0, 8)
		if err != nil {
			return fmt.Errorf("%q is not a byte", field)
		}
		o.MGID[i] = byte(b)
	}
	if o.MGID.IsZero() {
		return fmt.Errorf("%q is not a group", value)
	}
	return nil
}

// checkMulticast rejects options that -g contradicts.
func (o *Options) checkMulticast() error {
	switch {
	case !o.Multicast && !o.MGID.IsZero():
		return here("-M", "there is no group: add -g")
	case !o.Multicast:
		return nil
	case o.Verb != Send:
		return here("-g", "only SEND tests have it")
	case o.Bidirectional || o.Reversed:
		return here("-g", "the client sends to a group of the server: leave out -b and --reversed")
	case o.QPs > 1:
		return here("-g", "a group has one queue pair: leave out -q")
	case o.RDMACM:
		return here("-g", "the test attaches its queue pair itself: leave out -R")
	}
	o.Type = uverbs.UD
	return nil
}

// fitGroup chooses the GID that C's perftest uses with groups, unless -x is given.
func (o *Options) fitGroup(*uverbs.Context) error {
	if !o.Multicast {
		return nil
	}
	if o.link != uverbs.LinkEthernet {
		return here("-g", "on InfiniBand the subnet manager has to create the group, which the test does not request: use a "+
			"port of Ethernet")
	}
	o.GIDIndex = max(o.GIDIndex, 0)
	return nil
}

// receivesGroup reports whether an end receives what is sent to a group.
func (o *Options) receivesGroup(client bool) bool { return o.Multicast && (!o.Bandwidth || !client) }

// group returns the group of this end.
func (o *Options) group() uverbs.GID {
	g := o.MGID
	if g.IsZero() {
		g = defaultMGID
		g[len(g)-1] = choose[byte](o.client(), 1, 0)
	}
	return g
}

// attach attaches the QP to the group of this end, and makes the group its address.
func (e *endpoint) attach() error {
	if !e.o.receivesGroup(e.o.client()) {
		return nil
	}
	q := e.qps[0]
	q.own.gid, q.own.lid, q.own.qpn = e.o.group(), 0, multicastQPN
	return q.qp.AttachMcast(q.own.gid, q.own.lid)
}

// checkGroup checks that the peer receives what is sent to a group, if this end expects that.
func (o *Options) checkGroup(peer keys) error {
	if o.receivesGroup(!o.client()) && peer.qpn != multicastQPN {
		return atPeer("-g", "the peer's address is not a group: give -g to both ends, or to none")
	}
	return nil
}

// nothingFrom returns the error of a run that no datagram of a group has reached. As in C, attaching a QP does not join
// the group: the host's IP stack, from which soft-RoCE receives, and switches that snoop IGMP may drop its packets.
func nothingFrom(group netip.Addr) error {
	fix := "for a group of IPv4 (-M) and GIDs of IPv4 (-x), ip addr add GROUP/32 dev INTERFACE autojoin does"
	if group.Is4() {
		fix = fmt.Sprintf("ip addr add %v/32 dev INTERFACE autojoin", group)
	}
	return here("-g", "no datagram of the group %v has arrived: the host or a switch may drop them until the host joins "+
		"the group: %s", group, fix)
}

// isIPv4 reports whether a GID is an IPv4 address, or a group of IPv4 in the form of RoCE v1: ff0e::ffff:239.1.2.3.
func isIPv4(g uverbs.GID) bool {
	if g[0] == 0xff && g[1] == 0x0e {
		g[0], g[1] = 0, 0
	}
	return g.Addr().Is4()
}
