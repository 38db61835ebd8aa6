package uverbs

import (
	"encoding/hex"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
)

// A GID is a port's 128-bit address, in network order. On RoCE v2 it is an IP address; IPv4
// addresses have the form ::ffff:a.b.c.d.
type GID [16]byte

// Addr returns the GID as an IP address.
func (g GID) Addr() netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GIDFromAddr returns the GID of an IP address on RoCE.
func GIDFromAddr(a netip.Addr) GID { return a.As16() }

func (g GID) String() string { return netip.AddrFrom16(g).String() }

// subnet returns the subnet prefix, which InfiniBand uses to route between subnets.
func (g GID) subnet() [8]byte { return [8]byte(g[:8]) }

// IsZero reports whether all bytes of the GID are zero, which means that there is no GID.
func (g GID) IsZero() bool { return g == GID{} }

// MarshalText returns 32 hexadecimal digits. It cannot fail.
func (g GID) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, g[:]), nil }

// UnmarshalText parses 32 hexadecimal digits. It returns [ErrInvalid] for any other text.
func (g *GID) UnmarshalText(text []byte) error {
	var v GID
	if len(text) != hex.EncodedLen(len(v)) {
		return invalid("parse GID", "", fmt.Sprintf("a GID has 32 hexadecimal digits, got %q", text))
	}
	if _, err := hex.Decode(v[:], text); err != nil {
		return invalid("parse GID", "", fmt.Sprintf("a GID has 32 hexadecimal digits, got %q", text))
	}
	*g = v
	return nil
}

// A GIDType is the protocol that a GID is used with: enum ib_uverbs_gid_type.
type GIDType uint8

// The types of GIDs.
const (
	GIDTypeIB     GIDType = 0
	GIDTypeRoCEv1 GIDType = 1
	GIDTypeRoCEv2 GIDType = 2
)

func (t GIDType) String() string {
	switch t {
	case GIDTypeIB:
		return "IB"
	case GIDTypeRoCEv1:
		return "RoCE v1"
	case GIDTypeRoCEv2:
		return "RoCE v2"
	}
	return "GID type " + itoa(uint64(t))
}

// A GIDEntry is an entry of a port's GID table.
type GIDEntry struct {
	GID     GID
	Port    int
	Index   int // in the port's table; the value for AHAttr.SGIDIndex
	Type    GIDType
	IfIndex int    // of the network interface; 0 if there is none
	Netdev  string // name of the interface; "" if it has none in this namespace
}

// A gidKey is the argument of a search by findGID.
type gidKey struct {
	gid  GID
	port int
	v2   bool
}

// gidHints are the indexes at which GIDs were found. They are checked at each use.
type gidHints struct {
	room  atomic.Int32 // see gidRoom
	mu    sync.Mutex
	index map[gidKey]uint8
}

// maxGIDHints limits gidHints on a host whose addresses keep changing.
const maxGIDHints = 1024

func (h *gidHints) hint(k gidKey) (index uint8, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	index, ok = h.index[k]
	return index, ok
}

func (h *gidHints) remember(k gidKey, index uint8) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.index == nil || len(h.index) == maxGIDHints {
		h.index = make(map[gidKey]uint8)
	}
	h.index[k] = index
}

func (h *gidHints) forget(k gidKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.index, k)
}
