package rsocket

import (
	"net"
	"net/netip"
)

// A contactSocket carries contacts.
type contactSocket interface {
	ReadFromUDPAddrPort(b []byte) (n int, from netip.AddrPort, err error)
	WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error)
	LocalAddr() net.Addr
	Close() error
	// source returns the address from which this machine sends to another one.
	source(to netip.Addr) (netip.Addr, error)
}

// listenUDP returns a socket of package net. An address without IP stands for all addresses of the network. Tests
// with machines in memory replace it.
var listenUDP = func(network string, addr netip.AddrPort) (contactSocket, error) {
	c, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	return hostSocket{c}, nil
}

// A hostSocket is a UDP socket of the kernel.
type hostSocket struct{ *net.UDPConn }

// source asks the routing table: a socket that is connected gets the address, and nothing is sent.
func (hostSocket) source(to netip.Addr) (netip.Addr, error) {
	const discard = 9
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, discard)))
	if err != nil {
		return netip.Addr{}, err
	}
	from := c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	return from, c.Close()
}
