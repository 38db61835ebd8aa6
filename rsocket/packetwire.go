package rsocket

import (
	"encoding/binary"
	"net/netip"
)

// This file has the protocol of datagrams: the header of a contact, which travels by UDP, and the header of a
// datagram, which travels between UD QPs. librdmacm has the same: rsocket.c of rdma-core.

const (
	datagramLen = 2048 // of a datagram with its header, and of a contact with its header: what a peer in C receives

	contactTag   = 0x55555555
	contactLen4  = 16
	contactLen6  = 28
	datagramLen4 = 8
	datagramLen6 = 24

	maxQPN = 1<<24 - 2 // the next one stands for multicast groups
	minQPN = 2         // the first two are those of the fabric's management
)

// A contact is a message by UDP: a datagram to a peer whose QP is not known, or the reply to one, which has no payload.
type contact struct {
	op      op // opData or opControl
	qpn     uint32
	payload []byte
}

// contactHeaderLen returns the length of a contact's header, which depends on the family of the addresses.
func contactHeaderLen(is4 bool) int {
	if is4 {
		return contactLen4
	}
	return contactLen6
}

// appendContact appends a contact from a QP with an address.
func appendContact(b []byte, c contact, from netip.Addr) []byte {
	version, n := byte(6), contactLen6
	if from.Is4() {
		version, n = 4, contactLen4
	}
	b = binary.BigEndian.AppendUint32(b, contactTag)
	b = append(b, version, byte(c.op), byte(n), 0)
	b = binary.BigEndian.AppendUint32(b, c.qpn)
	b = appendAddr(b, from)
	return append(b, c.payload...)
}

func appendAddr(b []byte, a netip.Addr) []byte {
	if a.Is4() {
		ip := a.As4()
		return append(b, ip[:]...)
	}
	ip := a.As16()
	return append(b, ip[:]...)
}

// parseContact parses a message that has arrived by UDP from an address of the given family. It reports whether it is
// a contact. The address in the header says nothing that the network does not.
func parseContact(b []byte, is4 bool) (c contact, ok bool) {
	version, n := byte(6), contactHeaderLen(is4)
	if is4 {
		version = 4
	}
	if len(b) < n || len(b) > datagramLen || binary.BigEndian.Uint32(b) != contactTag || b[4] != version ||
		int(b[6]) != n {
		return contact{}, false
	}
	c = contact{op: op(b[5]), qpn: binary.BigEndian.Uint32(b[8:]) & 0xffffff, payload: b[n:]}
	return c, (c.op == opData || c.op == opControl) && c.qpn >= minQPN && c.qpn <= maxQPN
}

// datagramHeaderLen returns the length of a datagram's header.
func datagramHeaderLen(is4 bool) int {
	if is4 {
		return datagramLen4
	}
	return datagramLen6
}

// appendDatagramHeader appends the header of the datagrams from an address.
func appendDatagramHeader(b []byte, from netip.AddrPort) []byte {
	if from.Addr().Is4() {
		b = append(b, 4, datagramLen4)
		b = binary.BigEndian.AppendUint16(b, from.Port())
	} else {
		b = append(b, 6, datagramLen6)
		b = binary.BigEndian.AppendUint16(b, from.Port())
		b = append(b, 0, 0, 0, 0) // flow information
	}
	return appendAddr(b, from.Addr())
}

// parseDatagram parses a datagram that a QP with an address of the given family has received. It returns the sender
// and the payload, and reports whether it is one.
func parseDatagram(b []byte, is4 bool) (from netip.AddrPort, payload []byte, ok bool) {
	n := datagramHeaderLen(is4)
	if len(b) < n || int(b[1]) != n {
		return netip.AddrPort{}, nil, false
	}
	var ip netip.Addr
	if is4 {
		ok = b[0] == 4
		ip = netip.AddrFrom4([4]byte(b[4:8]))
	} else {
		ip = netip.AddrFrom16([16]byte(b[8:24]))
		ok = b[0] == 6 && !ip.Is4In6()
	}
	if !ok || ip.IsUnspecified() || ip.IsMulticast() {
		return netip.AddrPort{}, nil, false
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(b[2:])), b[n:], true
}
