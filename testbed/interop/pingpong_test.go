//go:build vm

package interop

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// address is rxe0's.
const address = "10.9.0.1"

// A side is one of the two programs.
type side string

const (
	goSide side = "go"
	cSide  side = "c"
)

// program is a side's program, with the options that it always needs: C does
// not choose a GID.
func (h *host) program(s side) (name string, args []string) {
	if s == cSide {
		return "ibv_rc_pingpong", []string{"-g", strconv.Itoa(h.gid)}
	}
	return h.pingpong, nil
}

// A pair is who plays whom.
type pair struct{ server, client side }

// testPingpong has pairs play with every size, over path MTUs up to mtu.
func (h *host) testPingpong(t *testing.T, mtu int, pairs ...pair) {
	for _, p := range pairs {
		t.Run(fmt.Sprintf("%s-server/%s-client", p.server, p.client), func(t *testing.T) {
			for _, m := range []struct{ size, iters, mtu int }{
				{1, 1000, 1024}, {64, 1000, 256}, {4096, 1000, 1024}, {65536, 1000, 4096}, {1 << 20, 50, 4096},
			} {
				t.Run(fmt.Sprintf("size=%d", m.size), func(t *testing.T) {
					args := []string{"-c", "-s", strconv.Itoa(m.size), "-n", strconv.Itoa(m.iters), "-m", strconv.Itoa(min(m.mtu, mtu))}
					if m.size <= 4096 || mtu >= 4096 { // long messages in short packets keep two busy ends from their work
						t.Run("poll", func(t *testing.T) { h.play(t, p.server, p.client, m.size, m.iters, args...) })
					}
					t.Run("events", func(t *testing.T) { h.play(t, p.server, p.client, m.size, m.iters, append(args, "-e")...) })
				})
			}
			t.Run("new_send", func(t *testing.T) {
				h.play(t, p.server, p.client, 4096, 1000, "-c", "-N", "--size=4096", "--iters", "1000", "--events")
			})
			t.Run("shallow", func(t *testing.T) { // the receive queue is filled up all the time
				h.play(t, p.server, p.client, 4096, 200, "-cen200", "-r2")
			})
		})
	}
}

// play has two programs play, which must both be content.
func (h *host) play(t *testing.T, server, client side, size, iters int, args ...string) {
	s, c := h.begin(t, server, args, client, args)
	if err := c.wait(); err != nil {
		t.Fatalf("client: %v\n%v\nserver:\n%v", err, c, s)
	}
	if err := s.wait(); err != nil {
		t.Fatalf("server: %v\n%v\nclient:\n%v", err, s, c)
	}
	serverSaid, clientSaid := parse(t, s, size, iters), parse(t, c, size, iters)
	if serverSaid.local != clientSaid.remote || serverSaid.remote != clientSaid.local {
		t.Errorf("they do not agree on addresses:\n%v\n%v", s, c)
	}
	t.Log(lastLine(c.stdout.String()))
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// begin starts the server, and the client when the server is ready. A Go server
// says so. The C server listens just after it has printed its address, which
// the Go client waits for; it prints at its end only, unless on a terminal.
func (h *host) begin(t *testing.T, server side, serverArgs []string, client side, clientArgs []string) (s, c *process) {
	t.Helper()
	port := []string{"-p", strconv.Itoa(h.nextPort)}
	h.nextPort++
	name, always := h.program(server)
	args := join(always, port, serverArgs)
	ready := false
	if server == goSide {
		s = h.start(t, name, args...)
		ready = s.stderr.await("listening on")
	} else {
		s = h.startOn(t, &vm.WindowSize{Rows: 24, Cols: 200}, name, args...)
		ready = s.stdout.await("local address")
	}
	if !ready {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	name, always = h.program(client)
	c = h.start(t, name, join(always, port, clientArgs, []string{address})...)
	return s, c
}

func join(lists ...[]string) []string {
	var all []string
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// said is what a program printed.
type said struct{ local, remote string }

var saidPattern = regexp.MustCompile(`\A  local address:  (LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:10\.9\.0\.1)
  remote address: (LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID ::ffff:10\.9\.0\.1)
(\d+) bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec
(\d+) iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter
\z`)

// parse reads the output of either program. The C program exits with 0 even
// when it has seen invalid data, and adds a line that says so.
func parse(t *testing.T, p *process, size, iters int) said {
	t.Helper()
	m := saidPattern.FindStringSubmatch(p.stdout.String())
	if m == nil {
		t.Fatalf("that is not what ibv_rc_pingpong prints:\n%v", p)
	}
	if m[3] != strconv.Itoa(2*size*iters) || m[4] != strconv.Itoa(iters) {
		t.Errorf("wrong figures:\n%v", p)
	}
	return said{m[1], m[2]}
}
