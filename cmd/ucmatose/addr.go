package main

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/cmd/internal/rdmaaddr"
	"github.com/goverbs/goverbs/uverbs"
)

// An address is the address at which a server listens, or the pair of addresses
// that a client connects.
type address struct {
	ip       *cm.AddrInfo
	own, gid *cm.IBAddr // instead of ip; gid is nil on a server
}

// find looks up the addresses of the command line.
func (t *test) find() (a address, err error) {
	o := t.opt
	hints := cm.AddrInfo{Flags: o.format, PortSpace: o.portSpace}
	switch {
	case o.gid:
		if a.own, err = o.ibAddr(o.bind); err == nil && o.server != "" {
			a.gid, err = o.ibAddr(o.server)
		}
	case o.server != "":
		a.ip, err = rdmaaddr.Client(t.ctx, o.server, o.bind, o.port, hints)
	default:
		a.ip, err = rdmaaddr.Server(t.ctx, o.bind, o.port, hints)
	}
	return a, err
}

// ibAddr returns the address for a GID and the port, which is part of the service
// ID.
func (o *options) ibAddr(text string) (*cm.IBAddr, error) {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		return nil, fmt.Errorf("invalid GID %q: %w", text, err)
	}
	port, err := net.LookupPort("tcp", o.port)
	if err != nil {
		return nil, err
	}
	return &cm.IBAddr{GID: uverbs.GIDFromAddr(ip), PKey: defaultPKey,
		ServiceID: uint64(o.portSpace)<<16 | uint64(port)}, nil
}

const (
	defaultPKey   = 0xffff
	portSpaceMask = 1<<64 - 1<<16 // of a service ID
)

func (a address) bind(id *cm.ID) error {
	if a.own != nil {
		return id.BindIB(*a.own)
	}
	return id.Bind(a.ip.Src)
}

func (a address) resolve(id *cm.ID) error {
	if a.gid != nil {
		own := *a.own
		own.ServiceID, own.ServiceMask = own.ServiceID&portSpaceMask, portSpaceMask // the kernel chooses the port
		return id.ResolveIB(&own, *a.gid, resolveTimeout)
	}
	return id.ResolveAddr(a.ip.Src, a.ip.Dst, resolveTimeout)
}

// path returns the path to a server in the same subnet.
func path(id *cm.ID, dlid uint16) (cm.PathRecord, error) {
	port, err := id.Verbs().QueryPort(id.Port())
	if err != nil {
		return cm.PathRecord{}, err
	}
	const rate10, life = 3, 14 // 10 Gb/s; 67 ms
	return cm.PathRecord{Flags: cm.PathGMP | cm.PathPrimary | cm.PathBidirectional, SGID: id.LocalGID(),
		DGID: id.RemoteGID(),
		SLID: uint16(port.LID), DLID: dlid, Reversible: true, NumPaths: 1, PKey: defaultPKey, MTU: port.ActiveMTU,
		Rate: rate10, LifeTime: life}, nil
}
