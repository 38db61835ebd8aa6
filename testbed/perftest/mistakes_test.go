//go:build vm

package perftest

import (
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testMistakes checks that our program reports which option is wrong at which end,
// whichever program is the other end.
func (h *host) testMistakes(t *testing.T) {
	four, six := h.gids(t)
	for _, c := range []struct {
		test                   string
		p                      pair
		serverArgs, clientArgs string
		at, says               string // the end that reports the text
	}{
		{"send_bw", pair{goSide, cSide}, "-s 1024", "-s 2048", "server",
			"-s at the peer: the peer's messages are longer than here, where -s is 1024"},
		{"send_bw", pair{goSide, cSide}, "-s 2048", "-s 1024", "server",
			"-s at the peer: the peer's messages have 1024 bytes, and here -s is 2048"},
		{"send_bw", pair{cSide, goSide}, "-s 1024", "-s 2048", "client", "-s at the peer"},
		{"send_bw", pair{goSide, cSide}, "-q 2", "-q 1", "server",
			"-q at the peer: the peer has fewer queue pairs than the 2 here"},
		{"send_bw", pair{goSide, cSide}, "-q 1", "-q 2", "server",
			"-q at the peer: the peer's keys are not those of its first queue pair"},
		{"send_lat", pair{goSide, cSide}, "-n 200", "-n 100", "server",
			"-n at the peer: the peer has finished, but this end has done 100 of 200 messages"},
		{"send_lat", pair{goSide, goSide}, "-x " + four, "-x " + six, "server", "-x at the peer: the GID here is"},
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
	t.Run("device_gone", h.deviceGone)
}

// gids returns the indices of an IPv4 and an IPv6 GID of rxe0. Their order in the
// table is not fixed.
func (h *host) gids(t *testing.T) (four, six string) {
	t.Helper()
	all := program.Run(t, h.guest, "sh", "-c", "cd /sys/class/infiniband/rxe0/ports/1/gids && for i in 0 1 2 3;"+
		" do echo $i $(cat $i); done")
	for line := range strings.Lines(all) {
		switch index, gid, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case strings.HasPrefix(gid, "0000:0000:0000:0000:0000:ffff:0a09"):
			four = index
		case strings.HasPrefix(gid, "fe80"):
			six = index
		}
	}
	if four == "" || six == "" {
		t.Fatalf("GIDs:\n%s", all)
	}
	return four, six
}

// mistakesAlone tests mistakes that an end detects without its peer.
func (h *host) mistakesAlone(t *testing.T) {
	for _, c := range []struct{ args, says string }{
		{"send_lat -d rxe9", "rxe9"},
		{"send_lat -d rxe0 -i 2", "-i here: "},
		{"send_lat -d rxe0 -x 77", "-x here: "},
		{"send_lat -d rxe0 -m 1000", "-m here: 1000 is not one of 256"},
		{"send_lat -d rxe0 -c UD -s 5000", "-s here: 5000 bytes are more than 4096, the MTU"},
		{"read_lat -d rxe0 -o 200", "-o here: rxe0 supports at most 128"},
		{"send_lat -d rxe0 -p 4 " + address, "start the server first"},
		{"send_lat -d rxe0 -p 4 -z " + address, "rejected"},
	} {
		p := program.Start(t, h.guest, h.ours, strings.Fields(c.args)...)
		if err := p.Wait(); err == nil || p.Status() != 1 || !strings.Contains(p.Stderr.String(), c.says) {
			t.Errorf("no %q:\n%v: %v", c.says, p, err)
		}
	}
}

// An end that is interrupted ends immediately, whatever it waits for, and prints the
// results so far.
func (h *host) interrupted(t *testing.T) {
	for _, c := range []struct{ test, args, says, row string }{
		{"send_lat", "-n 10000000", "these are the results so far", "\n 2 "},
		{"send_bw", "-n 100000000 -s 64 -e", "these are the results so far", "\n 64 "},
		{"write_bw", "-D 1000 -f 0 -s 64", "these are the results so far", "\n 64 "},
	} {
		s, cl := h.begin(t, pair{goSide, goSide}, c.test, c.args, c.args)
		if !cl.Stderr.Await(" messages") {
			t.Fatalf("no progress:\n%v", cl)
		}
		h.interrupt(t, cl, c.says)
		if strings.Count(cl.Stdout.String(), c.row) != 1 {
			t.Errorf("%s %s: no row %q:\n%v", c.test, c.args, c.row, cl)
		}
		if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "the peer has ended the connection") {
			t.Errorf("%v\n%v", err, s)
		}
	}
	for _, args := range []string{"send_lat", "send_lat -z", "write_bw -R"} {
		s := program.Start(t, h.guest, h.ours, append(strings.Fields(args), "-d", "rxe0")...)
		if !s.Stdout.Await("Waiting for client to connect") {
			t.Fatalf("%s does not listen:\n%v", args, s)
		}
		h.interrupt(t, s, "interrupted: nothing has been measured at this end")
	}
}

// interrupt sends SIGINT.
func (h *host) interrupt(t *testing.T, p *program.Process, says string) {
	t.Helper()
	if err := p.Cmd.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || p.Status() != 1 || !strings.Contains(p.Stderr.String(), says) {
		t.Errorf("no %q: %v\n%v", says, err, p)
	}
}

// An end whose peer is killed during a run reports it, and does not wait forever.
func (h *host) peerKilled(t *testing.T) {
	var servers, clients []*program.Process
	for _, args := range []string{"-n 10000000", "-n 10000000 -R"} {
		s, c := h.begin(t, pair{goSide, cSide}, "send_lat", args, args)
		servers, clients = append(servers, s), append(clients, c)
	}
	for i, s := range servers {
		if !s.Stderr.Await(" of 10000000 messages") {
			t.Fatalf("no progress:\n%v", s)
		}
		clients[i].Kill()
		if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "the peer has ended the connection") {
			t.Errorf("%v\n%v", err, s)
		}
	}
}

// Removal of the device during a run ends both ends, one of which polls and the
// other sleeps, with the results so far.
func (h *host) deviceGone(t *testing.T) {
	program.Until(t, h.guest, "grep -q ACTIVE /sys/class/infiniband/mlx5_0/ports/1/state")
	const port = "18514"
	args := strings.Fields("send_bw -F -d mlx5_0 -n 100000000 -s 64 -p " + port)
	s := program.Start(t, h.guest, h.ours, args...)
	if !s.Stdout.Await("Waiting for client to connect") {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	c := program.Start(t, h.guest, h.ours, append(args, "-e", "127.0.0.1")...)
	if !c.Stderr.Await(" of 100000000 messages") {
		t.Fatalf("no progress:\n%v", c)
	}
	program.Run(t, h.guest, "sh", "-c", "echo 1 > /sys/bus/pci/devices/0000:05:00.0/remove")
	for _, p := range []*program.Process{s, c} {
		if err := p.Wait(); err == nil || p.Status() != 1 ||
			!strings.Contains(p.Stderr.String(), "mlx5_0 has been removed, or has failed") ||
			strings.Count(p.Stdout.String(), "\n 64 ") != 1 {
			t.Errorf("%v\n%v", err, p)
		}
	}
}
