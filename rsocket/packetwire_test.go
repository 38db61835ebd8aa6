package rsocket_test

import (
	"bytes"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/goverbs/goverbs/rsocket"
)

var (
	ip4 = netip.MustParseAddr("192.0.2.1")
	ip6 = netip.MustParseAddr("2001:db8::1")
)

// TestPacketBytes compares headers with those that librdmacm sends.
func TestPacketBytes(t *testing.T) {
	for _, c := range []struct {
		name, want string
		got        []byte
	}{
		{"contact", "5555555504001000" + "00123456" + "c0000201" + "6869",
			rsocket.Contact(false, 0x123456, ip4, []byte("hi"))},
		{"reply", "5555555504071000" + "00123456" + "c0000201", rsocket.Contact(true, 0x123456, ip4, nil)},
		{"contact with IPv6", "5555555506001c00" + "00123456" + "20010db8000000000000000000000001",
			rsocket.Contact(false, 0x123456, ip6, nil)},
		{"datagram", "04081c06" + "c0000201", rsocket.DatagramHeader(netip.AddrPortFrom(ip4, 7174))},
		{"datagram with IPv6", "06181c06" + "00000000" + "20010db8000000000000000000000001",
			rsocket.DatagramHeader(netip.AddrPortFrom(ip6, 7174))},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// badContacts are not contacts if they come from an IPv4 address.
func badContacts() map[string][]byte {
	change := func(at int, b byte) []byte {
		c := rsocket.Contact(false, 0x123456, ip4, []byte("evil"))
		c[at] = b
		return c
	}
	return map[string][]byte{
		"empty":                 {},
		"short":                 rsocket.Contact(true, 2, ip4, nil)[:15],
		"tag":                   change(0, 0x54),
		"version":               change(4, 6),
		"op":                    change(5, 4),
		"length":                change(6, 17),
		"IPv6":                  rsocket.Contact(false, 2, ip6, nil),
		"QP 0":                  rsocket.Contact(false, 0, ip4, nil),
		"QP 1":                  rsocket.Contact(false, 1, ip4, nil),
		"QP of multicast":       rsocket.Contact(false, 0xffffff, ip4, nil),
		"longer than a receive": rsocket.Contact(false, 2, ip4, make([]byte, 2033)),
	}
}

// badDatagrams do not follow the protocol if an IPv4 address has received them.
func badDatagrams() map[string][]byte {
	header := func(a string) []byte { return rsocket.DatagramHeader(netip.AddrPortFrom(netip.MustParseAddr(a), 7)) }
	change := func(at int, b byte) []byte {
		c := append(header("192.0.2.1"), "evil"...)
		c[at] = b
		return c
	}
	return map[string][]byte{
		"short":               header("192.0.2.1")[:7],
		"version":             change(0, 6),
		"length":              change(1, 24),
		"IPv6":                append(header("2001:db8::1"), "evil"...),
		"unspecified address": append(header("0.0.0.0"), "evil"...),
		"multicast address":   append(header("224.0.0.1"), "evil"...),
	}
}

// TestBadPackets checks that packets that do not follow the protocol are recognized.
func TestBadPackets(t *testing.T) {
	for name, b := range badContacts() {
		if _, _, _, ok := rsocket.ParseContact(b, true); ok {
			t.Errorf("contact: %s is accepted", name)
		}
	}
	for name, b := range badDatagrams() {
		if _, _, ok := rsocket.ParseDatagram(b, true); ok {
			t.Errorf("datagram: %s is accepted", name)
		}
	}
	mapped := rsocket.DatagramHeader(netip.AddrPortFrom(netip.MustParseAddr("::ffff:192.0.2.1"), 7))
	if _, _, ok := rsocket.ParseDatagram(mapped, false); ok {
		t.Error("datagram: an IPv4 address in the form of IPv6 is accepted")
	}
}

// FuzzPackets parses bytes as a contact and as a datagram. What is accepted has one form.
func FuzzPackets(f *testing.F) {
	for _, ip := range []netip.Addr{ip4, ip6} {
		f.Add(rsocket.Contact(false, 0x123456, ip, []byte("hi")), ip.Is4())
		f.Add(append(rsocket.DatagramHeader(netip.AddrPortFrom(ip, 7174)), "hi"...), ip.Is4())
	}
	for _, bad := range []map[string][]byte{badContacts(), badDatagrams()} {
		for _, b := range bad {
			f.Add(b, true)
			f.Add(b, false)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, is4 bool) {
		ip, contactLen := ip6, 28
		if is4 {
			ip, contactLen = ip4, 16
		}
		if reply, qpn, payload, ok := rsocket.ParseContact(b, is4); ok {
			again := rsocket.Contact(reply, qpn, ip, payload)
			// The reserved bytes and the address do not count.
			if len(again) != len(b) || !bytes.Equal(again[:7], b[:7]) || !bytes.Equal(again[9:12], b[9:12]) ||
				!bytes.Equal(again[contactLen:], b[contactLen:]) || qpn < 2 || qpn > 1<<24-2 {
				t.Fatalf("%x is taken for %x", b, again)
			}
		}
		if from, payload, ok := rsocket.ParseDatagram(b, is4); ok {
			again := append(rsocket.DatagramHeader(from), payload...)
			clear := append([]byte(nil), b...)
			if !is4 { // the flow information does not count
				copy(clear[4:8], make([]byte, 4))
			}
			if !bytes.Equal(again, clear) || from.Addr().Is4() != is4 {
				t.Fatalf("%x is taken for %x", b, again)
			}
		}
	})
}
