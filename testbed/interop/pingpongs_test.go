//go:build vm

package interop

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// games lists the runs of all services except RC without an SRQ.
var games = []game{
	{ucPingpong, 1, 100, 1, ""},
	{ucPingpong, 4096, 100, 1, "-e"},
	{ucPingpong, 65536, 100, 1, "-er2 -m4096"},
	{udPingpong, 1, 100, 1, ""},
	{udPingpong, 1024, 100, 1, "-e"},
	{udPingpong, 4096, 100, 1, "-er2"},
	{srqPingpong, 1, 100, 1, "-q1"},
	{srqPingpong, 4096, 400, 16, "-e"},
	{srqPingpong, 65536, 100, 4, "-er4 -m4096 -q4"},
}

// testPingpong runs pairs. At the same time, programs whose peers have been killed
// wait for their timeout.
func (h *host) testPingpong(t *testing.T) {
	programs := []string{ucPingpong, udPingpong, srqPingpong}
	orphans := map[string]*program.Process{}
	for _, program := range programs {
		orphans[program] = h.startOrphan(t, program)
	}
	h.testGames(t)
	if !h.brief {
		t.Run("mistakes", h.testPingpongMistakes)
	}
	for _, program := range programs {
		t.Run(program+"/killed", func(t *testing.T) {
			p := orphans[program]
			err := p.Wait()
			said := p.Stderr.String()
			if err == nil || !strings.Contains(said, "no message for 10s: either the peer has ended") &&
				!strings.Contains(said, "retry count exceeded") {
				t.Errorf("%v: %v", p, err)
			}
		})
	}
}

// testGames runs the games.
func (h *host) testGames(t *testing.T) {
	for _, g := range games {
		for _, p := range goPairs {
			t.Run(fmt.Sprintf("%s/size=%d/%v", g.program, g.size, p), func(t *testing.T) {
				skipAlike(t, p, g.size == 1)
				h.play(t, p, g)
			})
		}
	}
}

// startOrphan returns a Go server whose C client was killed during the game.
func (h *host) startOrphan(t *testing.T, name string) *program.Process {
	t.Helper()
	args := []string{"-e", "-n", "1000000000"}
	s, c := h.beginPingpong(t, name, goSide, args, cSide, args)
	if !s.Stdout.Await("remote address") {
		t.Fatalf("the server does not play:\n%v", s)
	}
	if err := c.Cmd.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := c.Wait(); err == nil {
		t.Errorf("the client was not killed:\n%v", c)
	}
	return s
}

// testPingpongMistakes checks that mistakes of the user are reported with the fix.
func (h *host) testPingpongMistakes(t *testing.T) {
	for _, m := range []struct{ program, args, says string }{
		{udPingpong, "-s 4097", "a datagram of 4097 bytes exceeds the active MTU of port 1 of rxe0: use -s 4096"},
		{udPingpong, "-g 200", "port 1 of rxe0 has no GID at index 200: omit -g"},
		{udPingpong, "-i 2", "port 2"},
		{udPingpong, "-d nope", "nope"},
		{srqPingpong, "-r 10", "10 receives are too few for 16 queue pairs: use -r 16"},
		{srqPingpong, "-r 1000000000", "Entries is 1000000016, the device accepts"},
		{srqPingpong, "-s 2147483647 -c", "memory"},
	} {
		t.Run(m.program+" "+m.args, func(t *testing.T) {
			p := h.start(t, h.path(goSide, m.program), append([]string{"-p", h.port()}, strings.Fields(m.args)...)...)
			if err := p.Wait(); err == nil || !strings.Contains(p.Stderr.String(), m.says) {
				t.Errorf("no %q:\n%v: %v", m.says, p, err)
			}
		})
	}
	t.Run("queues", h.differentQueues)
	t.Run("sizes", h.differentDatagrams)
}

// The ends have different numbers of queue pairs. A C client whose server has ended
// waits forever.
func (h *host) differentQueues(t *testing.T) {
	s, c := h.beginPingpong(t, srqPingpong, goSide, []string{"-q", "5"}, cSide, []string{"-q", "3"})
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(),
		"the peer has 3 queue pairs, not 5: use the same -q at both ends") {
		t.Errorf("%v: %v", s, err)
	}
	h.interrupt(t, c)
}

// The ends have different datagram sizes.
func (h *host) differentDatagrams(t *testing.T) {
	s, c := h.beginPingpong(t, udPingpong, goSide, []string{"-s", "128"}, cSide, []string{"-s", "64"})
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(),
		"message 0 has 64 bytes, not 128: use the same -s at both ends") {
		t.Errorf("%v: %v", s, err)
	}
	h.interrupt(t, c)
}
