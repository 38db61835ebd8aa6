// Package rdmaaddr finds the addresses that the example programs are given on
// the command line, as the C programs' get_rdma_addr does.
package rdmaaddr

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
)

// Server finds where a server binds: bind is the name or address of an
// interface, "" for all of them, and port a number or the name of a service.
func Server(ctx context.Context, bind, port string, hints cm.AddrInfo) (*cm.AddrInfo, error) {
	hints.Flags |= cm.Passive
	return first(ctx, bind, port, hints)
}

// Client finds the server by name or address, and where to connect from, unless
// bind is "".
func Client(ctx context.Context, server, bind, port string, hints cm.AddrInfo) (*cm.AddrInfo, error) {
	if server == "" {
		return nil, errors.New("no server is named")
	}
	if bind != "" {
		own, err := Server(ctx, bind, "", hints)
		if err != nil {
			return nil, err
		}
		hints.Src, hints.Family = own.Src, own.Family
	}
	return first(ctx, server, port, hints)
}

func first(ctx context.Context, node, port string, hints cm.AddrInfo) (*cm.AddrInfo, error) {
	all, err := cm.GetAddrInfo(ctx, node, port, &hints)
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// Host finds the address of a host for a program whose port is a number of its
// own. The zero Addr stands for no host.
func Host(ctx context.Context, host string) (netip.Addr, error) {
	if host == "" {
		return netip.Addr{}, nil
	}
	ai, err := first(ctx, host, "", cm.AddrInfo{})
	if err != nil {
		return netip.Addr{}, err
	}
	return ai.Dst.Addr(), nil
}
