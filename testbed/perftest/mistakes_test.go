//go:build vm

package perftest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testMistakes sees to it that ours says which option is wrong at which end,
// whoever plays the other.
func (h *host) testMistakes(t *testing.T) {
	for _, c := range []struct {
		test                   string
		p                      pair
		serverArgs, clientArgs string
		at, says               string // which end says what
	}{
		{"send_bw", pair{goSide, cSide}, "-s 1024", "-s 2048", "server", "-s at the peer: the peer's messages are longer than here, where -s is 1024"},
		{"send_bw", pair{goSide, cSide}, "-s 2048", "-s 1024", "server", "-s at the peer: the peer's messages have 1024 bytes, and here -s is 2048"},
		{"send_bw", pair{cSide, goSide}, "-s 1024", "-s 2048", "client", "-s at the peer"},
		{"send_bw", pair{goSide, cSide}, "-q 2", "-q 1", "server", "-q at the peer: the peer has fewer queue pairs than the 2 here"},
		{"send_bw", pair{goSide, cSide}, "-q 1", "-q 2", "server", "-q at the peer: the peer speaks of another queue pair"},
		{"send_lat", pair{goSide, cSide}, "-n 200", "-n 100", "server", "-n at the peer: the peer is done, and here 100 of 200 messages are"},
		{"send_lat", pair{goSide, goSide}, "-x 1", "-x 0", "server", "-x at the peer: the GID here is"},
	} {
		s, cl := h.begin(t, c.p, c.test, c.serverArgs, c.clientArgs)
		end, other := s, cl
		if c.at == "client" {
			end, other = cl, s
		}
		if err := end.Wait(); err == nil || !strings.Contains(end.Stderr.String(), c.says) {
			t.Errorf("no %q:\n%v", c.says, end)
		}
		other.Kill()
		<-other.Ended
	}
	t.Run("alone", h.mistakesAlone)
	t.Run("interrupted", h.interrupted)
	t.Run("peer_killed", h.peerKilled)
}

// mistakesAlone are those that an end finds by itself.
func (h *host) mistakesAlone(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"send_lat -d rxe9", "rxe9"},
		{"send_lat -i 2", "-i here: "},
		{"send_lat -x 77", "-x here: "},
		{"send_lat -m 1000", "-m here: 1000 is none of 256"},
		{"send_lat -c UD -s 5000", "-s here: 5000 bytes are more than 4096, the MTU"},
		{"read_lat -o 200", "-o here: rxe0 has at most 128"},
		{"send_lat -p 4 " + address, "start the server first"},
		{"send_lat -p 4 -z " + address, "rejected"},
	} {
		p := program.Start(t, h.guest, h.ours, strings.Fields(c.args)...)
		if err := p.Wait(); err == nil || p.Status() != 1 || !strings.Contains(p.Stderr.String(), c.says) {
			t.Errorf("no %q:\n%v: %v", c.says, p, err)
		}
	}
}

// A run that is interrupted says what it has measured.
func (h *host) interrupted(t *testing.T) {
	s, c := h.begin(t, pair{goSide, goSide}, "send_lat", "-n 100000000", "-n 100000000")
	if !c.Stderr.Await(" of 100000000 messages") {
		t.Fatalf("no progress:\n%v", c)
	}
	if err := c.Cmd.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || !strings.Contains(c.Stderr.String(), "interrupted") || strings.Count(c.Stdout.String(), "\n 2 ") != 1 {
		t.Errorf("%v\n%v", err, c)
	}
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "the peer has ended the connection") {
		t.Errorf("%v\n%v", err, s)
	}
}

// An end whose peer is killed in mid-run says so, and does not wait for ever.
func (h *host) peerKilled(t *testing.T) {
	for _, args := range []string{"-n 100000000", "-n 100000000 -R"} {
		s, c := h.begin(t, pair{goSide, cSide}, "send_lat", args, args)
		if !s.Stderr.Await(" of 100000000 messages") {
			t.Fatalf("no progress:\n%v", s)
		}
		c.Kill()
		if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "the peer has ended the connection") {
			t.Errorf("%s: %v\n%v", args, err, s)
		}
	}
}
