//go:build vm

package interop

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
)

// pingpong is our rc_pingpong's C namesake.
const pingpong = "ibv_rc_pingpong"

// testPingpong has pairs play with every size, over path MTUs up to mtu.
func (h *host) testPingpong(t *testing.T, mtu int, pairs ...pair) {
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
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
	s, c := h.beginPingpong(t, server, args, client, args)
	if serverErr, clientErr := finish(s, c); serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
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

// beginPingpong starts a server and its client. A Go server says when it
// listens. The C server does just after it has printed its address, which the Go
// client waits for; it prints at its end only, unless on a terminal. C does not
// choose a GID.
func (h *host) beginPingpong(t *testing.T, server side, serverArgs []string, client side, clientArgs []string) (s, c *process) {
	t.Helper()
	port := []string{"-p", h.port()}
	always := map[side][]string{cSide: {"-g", strconv.Itoa(h.gid)}}
	ready := func(s *process) bool { return s.stderr.await("listening on") }
	var tty *vm.WindowSize
	if server == cSide {
		ready, tty = func(s *process) bool { return s.stdout.await("local address") }, &terminal
	}
	return h.begin(t, end{h.path(server, pingpong), slices.Concat(always[server], port, serverArgs), tty}, ready,
		end{h.path(client, pingpong), slices.Concat(always[client], port, clientArgs, []string{address}), nil})
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
