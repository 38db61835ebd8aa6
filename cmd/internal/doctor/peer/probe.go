package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/rdma"
)

// connectTimeout limits each of the two connections.
const connectTimeout = 10 * time.Second

// Probe connects to a doctor that listens at addr, an IP address or name, and port. It returns what it finds, and the
// figures if all operations work. The TCP connection goes to hello, which is the same address except in tests.
func Probe(ctx context.Context, addr, hello string) ([]check.Finding, *Figures) {
	var d net.Dialer
	short, cancel := context.WithTimeout(ctx, connectTimeout)
	c, err := d.DialContext(short, "tcp", hello)
	cancel()
	if err != nil {
		return []check.Finding{{ID: "peer-tcp", Severity: check.Error, Seen: err.Error(),
			Why: "the two ends exchange their settings through TCP before they use RDMA",
			Fix: "doctor -listen (on the peer; let firewalls pass TCP port 7473 and UDP port 4791)"}}, nil
	}
	all, figures, err := probe(ctx, c, addr)
	if err := errors.Join(err, c.Close()); err != nil {
		all = append(all, check.Finding{ID: "peer", Severity: check.Error, Seen: err.Error(),
			Why: "the ends could not exchange their settings", Fix: "doctor (on the peer: it reports what is wrong there)"})
	}
	return all, figures
}

// probe uses an established TCP connection.
func probe(ctx context.Context, c net.Conn, addr string) (all []check.Finding, _ *Figures, err error) {
	e, err := openEnd(localAddr(c))
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	d, err := newDatagrams(e)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	short, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	theirs, err := exchange(short, c, e.hello(d), true)
	if err != nil {
		return nil, nil, fmt.Errorf("exchange settings with %v: %w", c.RemoteAddr(), err)
	}
	all = compare(e.hello(d), theirs, e.gid.Netdev)
	if theirs.Datagrams != nil {
		all = append(all, result("ud", "a datagram", d.ping(ctx, *theirs.Datagrams), e.gid.Netdev))
	}
	short, cancel = context.WithTimeout(ctx, connectTimeout)
	r, err := rdma.Dial(short, addr, &rdma.Options{MaxMessage: MaxMessage})
	cancel()
	if err != nil {
		return append(all, connectFailed(err, e.gid.Netdev)), nil, nil
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	more, figures := operate(ctx, r, e.gid.Netdev)
	return append(all, more...), figures, nil
}

// connectFailed returns the finding that rdma_cm does not reach the peer, although TCP does.
func connectFailed(err error, netdev string) check.Finding {
	return check.Finding{ID: "peer-rdma", Severity: check.Error, Seen: err.Error(),
		Why: "TCP reaches the peer, and RDMA does not: RoCE v2 needs UDP port 4791, and the same MTU at both ends",
		Fix: "nft add rule inet filter input iifname " + netdev + " udp dport 4791 accept (at both ends)"}
}

// compare compares the settings of both ends.
func compare(ours, theirs *hello, netdev string) []check.Finding {
	all := []check.Finding{{ID: "peer", Seen: fmt.Sprintf("the peer uses %s port %d (%s, firmware %s, MTU %d)",
		theirs.Device, theirs.Port, theirs.Driver, cmp.Or(theirs.Firmware, "none"), theirs.MTU)}}
	if ours.MTU == theirs.MTU {
		return all
	}
	return append(all, check.Finding{ID: "mtu-mismatch", Severity: check.Warning,
		Seen: fmt.Sprintf("the RDMA MTU is %d bytes here (%s) and %d at the peer (%s)", ours.MTU, ours.Device, theirs.MTU,
			theirs.Device),
		Why: "connections use the smaller one at best; some fail, and datagrams that fit one end do not fit the other",
		Fix: fmt.Sprintf("ip link set %s mtu 4200 (at both ends and at the switches between them)", netdev)})
}

// localAddr returns the local IP address of a TCP connection.
func localAddr(c net.Conn) netip.Addr {
	a, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}
