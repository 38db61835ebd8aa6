//go:build vm

package interop

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

const udpong = "udpong"

// A udpongCase is a run of udpong: datagrams of a size.
type udpongCase struct {
	name, args  string
	size, count int
	echo        bool
}

// udpongCases have the shortest and the longest datagram of each family.
var udpongCases = []udpongCase{
	{"echo", "-T e", 1000, 200, true},
	{"echo_short", "-T e -T b", 16, 200, true},
	{"echo_long", "-T e -T a", 2020, 100, true},
	{"bandwidth", "-T b", 1000, 200, false},
}

// testUdpong sends datagrams between rsockets. On RoCE the C program fails alone, so that it runs with a library that
// corrects what it asks for.
func (h *host) testUdpong(t *testing.T) {
	h.output(t, "tcc", "-Wall", "-Werror", "-D_GNU_SOURCE", "-shared", "-o", selfAH,
		install(t, h.guest, filepath.Join("testdata", "selfah.c")), "-libverbs")
	c := h.start(t, udpong, "-s", address, "-C", "1", "-S", "64")
	if err := c.Wait(); err == nil || !strings.Contains(c.Stderr.String(), "rconnect: ") {
		t.Errorf("udpong of rdma-core works on RoCE: run it without %s\n%v", selfAH, c)
	}
	for _, p := range pairs {
		for _, f := range families {
			if h.brief && f.addr != address {
				continue
			}
			t.Run(p.String()+"/"+f.name, func(t *testing.T) {
				skipAlike(t, p, false) // testbed/faults has two of ours
				h.skipRepeat(t, p.server != p.client && f.addr == address || p == goPairs[0])
				if f.addr != address && p != goPairs[1] {
					vm.SkipRepeat(t, "ipv4, and another pair with ipv6")
				}
				untilNoCrash(t, func() error { return h.runUdpongs(t, p, f.addr) })
			})
		}
	}
}

// runUdpongs runs the cases with one server.
func (h *host) runUdpongs(t *testing.T, p pair, addr string) error {
	t.Helper()
	s, port := h.startUdpongServer(t, p.server, addr)
	defer s.Kill()
	before, sent := h.sentByUDP(t), 0
	for _, c := range udpongCases {
		sent += c.count
		if err := h.runUdpong(t, c, p.client, addr, port); err != nil {
			return failure(fmt.Errorf("%s: %w", c.name, err), s)
		}
	}
	// Echoes alone are two datagrams each. Those that precede the route go by UDP.
	if n := h.sentByUDP(t) - before; n > sent {
		return fmt.Errorf("%d datagrams went by UDP: the clients have sent %d, which were echoed", n, sent)
	}
	if !s.Running() {
		return failure(errors.New("the server has ended"), s)
	}
	return nil
}

// selfAH is the path of the library in the guest.
const selfAH = "/tmp/selfah.so"

// startUdpong starts a udpong of a side.
func (h *host) startUdpong(t *testing.T, s side, args ...string) *program.Process {
	t.Helper()
	if s == goSide {
		return h.start(t, h.ours[udpong], args...)
	}
	return h.start(t, "env", append([]string{"LD_PRELOAD=" + selfAH, udpong}, args...)...)
}

// startUdpongServer starts a server, and waits until it has its UDP socket.
func (h *host) startUdpongServer(t *testing.T, s side, addr string) (p *program.Process, port string) {
	t.Helper()
	port = h.port()
	p = h.startUdpong(t, s, "-b", addr, "-p", port, "-T", "b")
	program.Until(t, h.guest, fmt.Sprintf("ss -Hlun sport = :%s | grep -q %s", port, port))
	return p, port
}

// sentByUDP returns how many datagrams UDP sockets have sent. Those of RoCE do not count.
func (h *host) sentByUDP(t *testing.T) int {
	t.Helper()
	out := h.output(t, "sh", "-c", `awk '/^Udp:/ { n = $5 } /^Udp6OutDatagrams/ { n += $2 } END { print n }' `+
		`/proc/net/snmp /proc/net/snmp6`)
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// udpongLine is the line of a test: its bytes, transfers, time and rates.
var udpongLine = regexp.MustCompile(`^name      bytes   xfers   total       time     Gb/sec    usec/xfer\n` +
	`custom    ([\d.]+k?) +(\d+) +[\d.]+[km]? +\d+\.\d\ds +\d+\.\d\d +\d+\.\d\d\n$`)

// runUdpong runs a client. Its table says how many datagrams have arrived. Each echo is two.
func (h *host) runUdpong(t *testing.T, c udpongCase, s side, addr, port string) error {
	t.Helper()
	p := h.startUdpong(t, s, append([]string{"-s", addr, "-p", port, "-S", strconv.Itoa(c.size),
		"-C", strconv.Itoa(c.count)}, strings.Fields(c.args)...)...)
	if err := p.Wait(); err != nil {
		return failure(errors.New("the client has failed"), p)
	}
	m := udpongLine.FindStringSubmatch(p.Stdout.String())
	if m == nil {
		return failure(errors.New("the client prints no table"), p)
	}
	n, err := strconv.Atoi(m[2])
	if err != nil || c.echo && n != 2*c.count || !c.echo && (n < 1 || n > c.count) {
		return failure(fmt.Errorf("%s datagrams have arrived", m[2]), p)
	}
	return nil
}
