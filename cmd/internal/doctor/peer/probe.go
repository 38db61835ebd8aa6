package peer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/rdma"
)

// connectTimeout limits each of the two connections.
const connectTimeout = 10 * time.Second

// ids lists the IDs of the findings of Probe.
var ids = []string{"peer", "peer-name", "peer-tcp", "peer-busy", "peer-rdma", "mtu-mismatch", "ud", "share", "send",
	"read", "write", "atomic", "figures"}

// Finds reports whether a finding with this ID is one of Probe, which is about two machines.
func Finds(id string) bool { return slices.Contains(ids, id) }

// Probe connects to a doctor that listens at addr, an IP address or name, and port. It returns what it finds, and the
// figures if all operations work. The TCP connection goes to hello, which is the same address except in tests.
func Probe(ctx context.Context, addr, hello string) ([]check.Finding, *Figures) {
	var d net.Dialer
	short, cancel := context.WithTimeout(ctx, connectTimeout)
	c, err := d.DialContext(short, "tcp", hello)
	cancel()
	if err != nil {
		return []check.Finding{noTCP(err)}, nil
	}
	all, figures, err := probe(ctx, c, addr)
	if err := errors.Join(err, c.Close()); err != nil {
		all = append(all, notServed(err))
	}
	return all, figures
}

// notServed returns the finding that TCP reaches the peer, and the ends have not exchanged their settings.
func notServed(err error) check.Finding {
	if errors.Is(err, errBusy) {
		return check.Finding{ID: "peer-busy", Severity: check.Error, Seen: err.Error(),
			Why: "the connection to the peer was not examined", Fix: "doctor (again, when other doctors have ended)"}
	}
	return check.Finding{ID: "peer", Severity: check.Error, Seen: err.Error(),
		Why: "the ends could not exchange their settings", Fix: "doctor (on the peer: it reports what is wrong there)"}
}

// noTCP returns the finding that TCP does not reach the peer.
func noTCP(err error) check.Finding {
	f := check.Finding{ID: "peer-tcp", Severity: check.Error, Seen: err.Error(),
		Why: "the two ends exchange their settings through TCP before they use RDMA",
		Fix: "doctor -listen (on the peer; let firewalls pass TCP port 7473 and UDP port 4791)"}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		f.ID, f.Why = "peer-name", "the name of the peer has no address here"
		if !dns.IsNotFound {
			f.Why = "the name of the peer cannot be looked up now: the name server does not reply, or refuses to"
		}
		f.Fix = "getent hosts " + dns.Name + " (correct the name, or give doctor an IP address)"
	}
	return f
}

// A path is what leads to the peer, for the texts of findings.
type path struct {
	soft   bool       // an end has soft-RoCE, whose packets pass the firewall of its host
	netdev string     // of this end
	peer   netip.Addr // of its TCP connection
	mtu    int        // the smaller RDMA MTU
}

// fitMTU returns the command that sends packets as large as the largest of RDMA and, if none arrives, sets a smaller
// MTU. The packets have the data of one of RDMA with the headers of the transport and of a WRITE, and the checksum. The
// header of ICMP is as long as that of UDP.
func (p path) fitMTU() string {
	const extra = 12 + 16 + 4
	netdev := cmp.Or(p.netdev, "INTERFACE")
	ping := fmt.Sprintf("ping -c 2 -W 1 -M do -s %d -I %s %v", p.mtu+extra, netdev, p.peer)
	smaller := check.SmallerMTU(p.mtu)
	if smaller == 0 {
		return ping + " (if it gets no reply, the path drops even small packets)"
	}
	return fmt.Sprintf("%s || ip link set %s mtu %d (without a reply, the path drops packets as large as RDMA's: "+
		"set this MTU at both ends, or a larger one at the switches between them)", ping, netdev, smaller)
}

// probe uses an established TCP connection.
func probe(ctx context.Context, c net.Conn, addr string) (all []check.Finding, _ *Figures, err error) {
	e, err := openEnd(ipOf(c.LocalAddr()))
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
	ours := e.hello(d)
	all = compare(ours, theirs, e.gid.Netdev)
	p := path{slices.Contains([]string{ours.Driver, theirs.Driver}, "rxe"), e.gid.Netdev, ipOf(c.RemoteAddr()),
		min(ours.MTU, theirs.MTU)}
	if theirs.Datagrams != nil {
		all = append(all, p.result("ud", "a datagram", d.ping(ctx, *theirs.Datagrams)))
	}
	short, cancel = context.WithTimeout(ctx, connectTimeout)
	r, err := rdma.Dial(short, addr, &rdma.Options{MaxMessage: MaxMessage})
	cancel()
	if err != nil {
		return append(all, p.connectFailed(err)), nil, nil
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	more, figures := p.operate(ctx, r)
	return append(all, more...), figures, nil
}

// connectFailed returns the finding that rdma_cm does not reach the peer, although TCP does.
func (p path) connectFailed(err error) check.Finding {
	f := check.Finding{ID: "peer-rdma", Severity: check.Error, Seen: err.Error(),
		Why: "TCP reaches the peer, and RDMA does not: packets to UDP port 4791 are lost, or the peer's device does not work",
		Fix: "doctor (on the peer; then check that switches and routers pass UDP port 4791: the packets of an adapter " +
			"pass no firewall of its host)"}
	switch {
	case errors.Is(err, cm.ErrServerBusy), errors.Is(err, cm.ErrServerLimit):
		return notServed(fmt.Errorf("%w: %w", errBusy, err))
	case errors.Is(err, cm.ErrRejected):
		f.Why = "the peer has received the request and rejects it: no program listens there, or it is of another release"
		f.Fix = "doctor -listen (on the peer, of the same release)"
	case p.soft:
		f.Fix = "nft insert rule inet filter input udp dport 4791 accept (at each end with soft-RoCE and a firewall, whose " +
			"tables and chains nft list ruleset shows; doctor on the peer checks its device)"
	}
	return f
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

// ipOf returns the IP address of an end of a TCP connection.
func ipOf(end net.Addr) netip.Addr {
	a, err := netip.ParseAddrPort(end.String())
	if err != nil {
		return netip.Addr{}
	}
	return a.Addr().Unmap()
}
