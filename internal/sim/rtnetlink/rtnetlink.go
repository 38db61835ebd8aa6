// Package rtnetlink creates dummy network devices, brings devices up and down, and adds addresses, for tests of
// RDMA devices on them. Its functions need CAP_NET_ADMIN: see rtnetlink(7).
package rtnetlink

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Sizes of a netlink message.
const (
	netlinkHeaderSize  = 16
	netlinkErrorOffset = netlinkHeaderSize
)

// LinkUp brings a network device up.
func LinkUp(name string) error { return setLink(name, "up", unix.IFF_UP) }

// LinkDown brings a network device down. It loses its routes, and keeps its IPv4 addresses.
func LinkDown(name string) error { return setLink(name, "down", 0) }

func setLink(name, state string, flags uint32) error {
	index, err := linkIndex(name)
	if err != nil {
		return err
	}
	if err := request(unix.RTM_NEWLINK, 0, ifInfo(index, flags, unix.IFF_UP)); err != nil {
		return fmt.Errorf("bringing %s %s: %w", name, state, err)
	}
	return nil
}

// AddDummy adds a dummy network device, which can have addresses and drops all
// packets.
func AddDummy(name string) error {
	kind := attr(nil, unix.IFLA_INFO_KIND, []byte("dummy"))
	msg := ifInfo(0, 0, 0)
	msg = attr(msg, unix.IFLA_IFNAME, append([]byte(name), 0))
	msg = attr(msg, unix.IFLA_LINKINFO|unix.NLA_F_NESTED, kind)
	if err := request(unix.RTM_NEWLINK, unix.NLM_F_CREATE|unix.NLM_F_EXCL, msg); err != nil {
		return fmt.Errorf("adding dummy device %s: %w", name, err)
	}
	return nil
}

// AddAddress adds an address, such as 10.9.0.1/24, to a network device, and
// brings the device up.
func AddAddress(name string, addr netip.Prefix) error {
	index, err := linkIndex(name)
	if err != nil {
		return err
	}
	family := byte(unix.AF_INET)
	flags := byte(0)
	if addr.Addr().Is6() {
		family, flags = unix.AF_INET6, unix.IFA_F_NODAD
	}
	// struct ifaddrmsg: family, prefix length, flags, scope, index
	msg := []byte{family, byte(addr.Bits()), flags, unix.RT_SCOPE_UNIVERSE}
	msg = binary.NativeEndian.AppendUint32(msg, uint32(index))
	msg = attr(msg, unix.IFA_LOCAL, addr.Addr().AsSlice())
	msg = attr(msg, unix.IFA_ADDRESS, addr.Addr().AsSlice())
	if err := request(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_EXCL, msg); err != nil {
		return fmt.Errorf("address %v on %s: %w", addr, name, err)
	}
	return LinkUp(name)
}

func linkIndex(name string) (int, error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return 0, fmt.Errorf("network device %s: %w", name, err)
	}
	return dev.Index, nil
}

// ifInfo returns a struct ifinfomsg that sets those flags that change has.
func ifInfo(index int, flags, change uint32) []byte {
	b := make([]byte, 4, 64) // family, pad, type
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint32(b, flags)
	return binary.NativeEndian.AppendUint32(b, change)
}

// attr appends a netlink attribute, padded to four bytes.
func attr(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// request sends a request and waits for its acknowledgment.
func request(kind uint16, flags int, payload []byte) (err error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	msg := make([]byte, 0, netlinkHeaderSize+len(payload))
	msg = binary.NativeEndian.AppendUint32(msg, uint32(netlinkHeaderSize+len(payload)))
	msg = binary.NativeEndian.AppendUint16(msg, kind)
	msg = binary.NativeEndian.AppendUint16(msg, uint16(flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK))
	msg = binary.NativeEndian.AppendUint64(msg, 0) // sequence and port
	msg = append(msg, payload...)
	if err := unix.Sendto(fd, msg, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 8192)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if n < netlinkErrorOffset+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return fmt.Errorf("netlink: not an acknowledgment: % x", reply[:n])
	}
	if code := int32(binary.NativeEndian.Uint32(reply[netlinkErrorOffset:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
