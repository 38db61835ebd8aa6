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
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// The C programs that our pingpong programs replace.
const (
	rcPingpong  = "ibv_rc_pingpong"
	ucPingpong  = "ibv_uc_pingpong"
	udPingpong  = "ibv_ud_pingpong"
	srqPingpong = "ibv_srq_pingpong"
)

// A game is a run of a pair of programs.
type game struct {
	program     string
	size, iters int
	queues      int    // queue pairs of each end
	args        string // beyond -c, -s and -n
}

// goPairs lists the pairs in which at least one end is our program.
var goPairs = []pair{{goSide, cSide}, {cSide, goSide}, {goSide, goSide}}

// testRCPingpong runs pairs with every message size, with path MTUs up to mtu.
func (h *host) testRCPingpong(t *testing.T, mtu int, pairs ...pair) {
	for _, p := range pairs {
		t.Run(p.String(), func(t *testing.T) {
			skipAlike(t, p, len(pairs) == 1)
			for _, m := range []struct{ size, iters, mtu int }{
				{1, 200, 1024}, {64, 200, 256}, {4096, 200, 1024}, {65536, 200, 4096}, {1 << 20, 10, 4096},
			} {
				g := game{rcPingpong, m.size, m.iters, 1, "-m " + strconv.Itoa(min(m.mtu, mtu))}
				t.Run(fmt.Sprintf("size=%d", m.size), func(t *testing.T) {
					// Long messages in short packets are too slow with two busy ends.
					if (m.size <= 4096 || mtu >= 4096) && (m.size == 1 || !h.brief) {
						t.Run("poll", func(t *testing.T) {
							if len(pairs) > 1 && m.size != 1 && m.size != 4096 {
								vm.SkipRepeat(t, "events, and poll with other sizes")
							}
							h.play(t, p, g)
						})
					}
					g.args += " -e"
					t.Run("events", func(t *testing.T) { h.play(t, p, g) })
				})
			}
			// 1000 messages, the programs' default, use each of the 500 receives twice.
			t.Run("new_send", func(t *testing.T) { h.play(t, p, game{rcPingpong, 4096, 1000, 1, "-N --events"}) })
			t.Run("shallow", func(t *testing.T) { // the receive queue is refilled all the time
				h.play(t, p, game{rcPingpong, 4096, 200, 1, "-er2"})
			})
		})
	}
}

// play runs two programs, which must both succeed.
func (h *host) play(t *testing.T, p pair, g game) {
	args := append([]string{"-c", "-s", strconv.Itoa(g.size), "-n", strconv.Itoa(g.iters)}, strings.Fields(g.args)...)
	s, c := h.beginPingpong(t, g.program, p.server, args, p.client, args)
	if serverErr, clientErr := program.Finish(s, c); serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	serverSaid, clientSaid := g.parse(t, s), g.parse(t, c)
	if !slices.Equal(serverSaid.local, clientSaid.remote) || !slices.Equal(serverSaid.remote, clientSaid.local) {
		t.Errorf("the addresses differ:\n%v\n%v", s, c)
	}
	t.Log(lastLine(c.Stdout.String()))
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// beginPingpong starts a server and its client. A Go server prints when it listens.
// The C server listens just after it has printed its address, for which the Go
// client waits; it prints that immediately only on a terminal. The C programs need
// a GID index.
func (h *host) beginPingpong(t *testing.T, name string, server side, serverArgs []string, client side,
	clientArgs []string) (s, c *program.Process) {
	t.Helper()
	port := []string{"-p", h.port()}
	always := map[side][]string{}
	if h.gid >= 0 {
		always[cSide] = []string{"-g", strconv.Itoa(h.gid)}
	}
	ready := func(s *program.Process) bool { return s.Stderr.Await("listening on") }
	var tty *vm.WindowSize
	if server == cSide {
		ready, tty = func(s *program.Process) bool { return s.Stdout.Await("local address") }, &program.Terminal
	}
	return h.begin(t, end{h.path(server, name), slices.Concat(always[server], port, serverArgs), tty}, ready,
		end{h.path(client, name), slices.Concat(always[client], port, clientArgs, []string{address}), nil})
}

// said holds the addresses that a program printed for each queue pair.
type said struct{ local, remote []string }

var saidPattern = regexp.MustCompile(`\A((?:  local address:  LID .*\n)+)((?:  remote address: LID .*\n)+)` +
	`(\d+) bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec
(\d+) iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter
\z`)

var addressPattern = regexp.MustCompile(`\A  (local address: |remote address:) ` +
	`(LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}|LID 0x0001, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6})` +
	`([,:]) (GID ::ffff:10\.9\.0\.1|GID ::)\n\z`)

// parse parses the output of either program. The C program exits with 0 even if it
// has seen invalid data, but prints an additional line.
func (g game) parse(t *testing.T, p *program.Process) said {
	t.Helper()
	m := saidPattern.FindStringSubmatch(p.Stdout.String())
	if m == nil {
		t.Fatalf("that is not what %s prints:\n%v", g.program, p)
	}
	if m[3] != strconv.Itoa(2*g.size*g.iters) || m[4] != strconv.Itoa(g.iters) {
		t.Errorf("wrong results:\n%v", p)
	}
	separator := ","
	if g.program == udPingpong {
		separator = ":"
	}
	return said{g.addresses(t, p, m[1], separator), g.addresses(t, p, m[2], ",")}
}

// addresses parses the address lines of all queue pairs.
func (g game) addresses(t *testing.T, p *program.Process, lines, separator string) (all []string) {
	t.Helper()
	for line := range strings.Lines(lines) {
		m := addressPattern.FindStringSubmatch(line)
		if m == nil || m[3] != separator {
			t.Fatalf("%q is not what %s prints:\n%v", line, g.program, p)
		}
		all = append(all, m[2]+", "+m[4])
	}
	if len(all) != g.queues {
		t.Errorf("addresses of %d queue pairs, not of %d:\n%v", len(all), g.queues, p)
	}
	return all
}
