//go:build vm

package interop

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// games are played by the services other than RC with receives of its own.
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

// testPingpong has pairs play. Meanwhile ends whose peers have been killed wait
// for nothing.
func (h *host) testPingpong(t *testing.T) {
	programs := []string{ucPingpong, udPingpong, srqPingpong}
	bereaved := map[string]*program.Process{}
	for _, program := range programs {
		bereaved[program] = h.bereave(t, program)
	}
	h.testGames(t)
	if !h.brief {
		t.Run("mistakes", h.testPingpongMistakes)
	}
	for _, program := range programs {
		t.Run(program+"/killed", func(t *testing.T) {
			p := bereaved[program]
			err := p.Wait()
			said := p.Stderr.String()
			if err == nil || !strings.Contains(said, "nothing has come for 10s: the peer has ended") && !strings.Contains(said, "retry count exceeded") {
				t.Errorf("%v: %v", p, err)
			}
		})
	}
}

// testGames has pairs play what is not rc_pingpong.
func (h *host) testGames(t *testing.T) {
	for _, g := range games {
		for _, p := range goPairs {
			t.Run(fmt.Sprintf("%s/size=%d/%v", g.program, g.size, p), func(t *testing.T) { h.play(t, p, g) })
		}
	}
}

// bereave returns a Go server whose C client is killed in the midst of a game.
func (h *host) bereave(t *testing.T, name string) *program.Process {
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

// testPingpongMistakes sees to it that what the user got wrong is told with the
// mend.
func (h *host) testPingpongMistakes(t *testing.T) {
	for _, m := range []struct{ program, args, says string }{
		{udPingpong, "-s 4097", "a datagram has at most 4096 bytes, the active MTU of port 1 of rxe0, not 4097: give -s 4096"},
		{udPingpong, "-g 200", "port 1 of rxe0 has no GID at index 200: leave -g out"},
		{udPingpong, "-i 2", "port 2"},
		{udPingpong, "-d nope", "nope"},
		{srqPingpong, "-r 10", "10 receives are too few for 16 queue pairs: give -r 16"},
		{srqPingpong, "-r 1000000000", "Entries is 1000000016, the device takes"},
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

// The ends do not have as many queue pairs. A C client whose server leaves
// waits for ever.
func (h *host) differentQueues(t *testing.T) {
	s, c := h.beginPingpong(t, srqPingpong, goSide, []string{"-q", "5"}, cSide, []string{"-q", "3"})
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "the peer has 3 queue pairs, not 5: give both ends the same -q") {
		t.Errorf("%v: %v", s, err)
	}
	h.interrupt(t, c)
}

// The ends do not agree on the size of datagrams.
func (h *host) differentDatagrams(t *testing.T) {
	s, c := h.beginPingpong(t, udPingpong, goSide, []string{"-s", "128"}, cSide, []string{"-s", "64"})
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "message 0 has 64 bytes, not 128: give both ends the same -s") {
		t.Errorf("%v: %v", s, err)
	}
	h.interrupt(t, c)
}
