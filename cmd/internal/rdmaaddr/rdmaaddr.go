// Package rdmaaddr resolves the addresses on the command line of the example
// programs, as get_rdma_addr of the C programs does.
package rdmaaddr

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goverbs/goverbs/cm"
)

// Server returns the address to which a server binds. bind is the name or address
// of an interface, or "" for all interfaces. port is a number or a service name.
func Server(ctx context.Context, bind, port string, hints cm.AddrInfo) (*cm.AddrInfo, error) {
	hints.Flags |= cm.Passive
	return first(ctx, bind, port, hints)
}

// Client returns the address of the server, given by name or address, and the local
// address given by bind, unless that is "".
func Client(ctx context.Context, server, bind, port string, hints cm.AddrInfo) (*cm.AddrInfo, error) {
	if server == "" {
		return nil, errors.New("no server address")
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

// Host returns the address of a host, or the zero Addr if host is "". It is for
// programs that take the port as a separate number.
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
