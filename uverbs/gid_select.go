package uverbs

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// A GIDChoice is an entry with its score as RankGIDs computed it.
type GIDChoice struct {
	GIDEntry
	Score  int    // higher is better; an entry with a score below 0 cannot be used
	Reason string // why the entry has this score
}

func (c GIDChoice) String() string {
	netdev := ""
	if c.Netdev != "" {
		netdev = " on " + c.Netdev
	}
	return fmt.Sprintf("port %d GID %d, %s %s%s: %s", c.Port, c.Index, c.Type, c.GID, netdev, c.Reason)
}

// RankGIDs returns the entries of a port's GID table with a score for communication with peer,
// best first. The zero peer means any. Port 0 means the first active port.
//
// On RoCE an entry must be of type v2, since v1 is not routed and needs the same setting at the
// peer, and must be of the peer's IP family. The best entry is the one with the source address
// that the routing table selects. Then global addresses rank before link-local addresses, and
// lower indexes before higher ones. RankGIDs returns [ErrInvalid] if the device has no such
// port.
func (c *Context) RankGIDs(port int, peer netip.Addr) ([]GIDChoice, error) {
	if port == 0 {
		var err error
		if port, err = c.activePort(); err != nil {
			return nil, err
		}
	}
	entries, err := c.GIDs(port)
	if err != nil {
		return nil, err
	}
	peer = peer.Unmap()
	source := routeSource(peer)
	choices := make([]GIDChoice, len(entries))
	for i, e := range entries {
		score, reason := scoreGID(e, peer, source)
		choices[i] = GIDChoice{e, score, reason}
	}
	slices.SortStableFunc(choices, func(a, b GIDChoice) int { return b.Score - a.Score })
	return choices, nil
}

// SelectGID returns the best entry of a port's GID table for communication with peer: see
// [Context.RankGIDs]. If no entry can be used, its error is [ErrInvalid] and lists every entry
// with the reason. It is also [ErrInvalid] if the device has no such port.
func (c *Context) SelectGID(port int, peer netip.Addr) (*GIDEntry, error) {
	choices, err := c.RankGIDs(port, peer)
	if err != nil {
		return nil, err
	}
	if len(choices) > 0 && choices[0].Score >= 0 {
		return &choices[0].GIDEntry, nil
	}
	detail := "the port's GID table is empty: set its network interface up and give it an address"
	if len(choices) > 0 {
		var lines []string
		for _, ch := range choices {
			lines = append(lines, ch.String())
		}
		detail = "no GID can be used, give the port's network interface an IP address that reaches the peer: " +
			strings.Join(lines, "; ")
	}
	return nil, invalid("select GID", c.name, detail)
}

// The scores of scoreGID.
const (
	scoreUnusable  = -1
	scoreLinkLocal = 1
	scoreIB        = 2
	scoreIPv6      = 2
	scoreIPv4      = 3
	scoreRouted    = 4
)

// scoreGID returns the score of one entry and the reason for it. source is the source address that
// the routing table selects, or the zero Addr.
func scoreGID(e GIDEntry, peer, source netip.Addr) (score int, reason string) {
	addr := e.GID.Addr()
	switch {
	case e.Index > math.MaxUint8:
		return scoreUnusable, "its index does not fit an address vector, which goes up to 255"
	case e.Type == GIDTypeRoCEv1:
		return scoreUnusable, "RoCE v1 is not routed, and the peer may speak v2 alone"
	case e.Type == GIDTypeIB:
		return scoreIB, "InfiniBand port"
	case e.Netdev == "" && e.IfIndex != 0:
		return scoreUnusable, "its network interface is in another namespace"
	case peer.IsValid() && peer.Is4() != addr.Is4():
		return scoreUnusable, "the peer's address is of the other IP family"
	case source.IsValid() && addr == source:
		return scoreRouted, "the routing table sends from this address"
	case addr.IsLinkLocalUnicast() && !peer.IsLinkLocalUnicast():
		return scoreLinkLocal, "link-local: reaches this link alone"
	case addr.Is4():
		return scoreIPv4, "RoCE v2 over IPv4"
	}
	return scoreIPv6, "RoCE v2 over IPv6"
}

// routeSource returns the source address that the kernel would select for a packet to peer. It
// connects a UDP socket, which sends nothing. It returns the zero Addr if there is no route or
// no peer.
func routeSource(peer netip.Addr) netip.Addr {
	if !peer.IsValid() {
		return netip.Addr{}
	}
	const discard = 9 // any port is suitable
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(peer.Unmap(), discard)))
	if err != nil {
		return netip.Addr{}
	}
	defer conn.Close()
	return conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().WithZone("")
}
