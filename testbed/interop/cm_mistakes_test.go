//go:build vm

package interop

import (
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testCMMistakes checks that our programs report what is wrong and how to fix it,
// and end whatever the C program at the other end does.
func (h *host) testCMMistakes(t *testing.T) {
	t.Run("alone", h.mistakesAlone)
	t.Run("port_in_use", h.portInUse)
	t.Run("disagree", h.disagree)
	t.Run("interrupted", h.interruptedServers)
}

// mistakesAlone tests mistakes that a program detects without a peer.
func (h *host) mistakesAlone(t *testing.T) {
	const nobody, elsewhere = "rejected: no program listens on that port", "10.8.0.1"
	for _, c := range []struct{ program, args, says string }{
		{"rping", "-c -C 1 -a " + address, nobody},
		{"rping", "-c -C 1 -a " + address6, nobody},
		{"ucmatose", "-c 2 -s " + address, nobody},
		{"udaddy", "-c 2 -s " + address6, nobody},
		{"rdma_client", "-s " + address, nobody},
		{"rping", "-c -C 1 -a " + elsewhere, "no route to it"},
		{"rping", "-c -C 1 -I " + elsewhere + " -a " + address, "no RDMA device has the address " + elsewhere},
		{"rping", "-s -a " + elsewhere, "no RDMA device has the address " + elsewhere},
		{"rdma_server", "-s " + elsewhere, "no RDMA device has the address " + elsewhere},
		{"mckey", "-m " + address, "it is not a multicast address"},
	} {
		p := h.start(t, h.path(goSide, c.program), strings.Fields(c.args)...)
		h.fails(t, p, c.says)
	}
}

// fails checks that our program fails with a text on standard error.
func (h *host) fails(t *testing.T, p *program.Process, says string) {
	t.Helper()
	if err := p.Wait(); err == nil || p.Status() != 1 || !strings.Contains(p.Stderr.String(), says) {
		t.Errorf("no %q:\n%v: %v", says, p, err)
	}
}

// portInUse tests a port that is used by a C server.
func (h *host) portInUse(t *testing.T) {
	for _, c := range []struct{ holder, args, space, port, program, same string }{
		{"rping", "-s -p 20001 -a " + address, "TCP", "20001", "ucmatose", "-p 20001 -b " + address},
		{"ucmatose", "-p 20002", "TCP", "20002", "rping", "-s -p 20002"},
		{"rdma_server", "-p 20003 -s " + address6, "TCP", "20003", "rdma_server", "-p 20003 -s " + address6},
		{"udaddy", "", "UDP", "7174", "udaddy", ""},
	} {
		s := h.start(t, c.holder, strings.Fields(c.args)...)
		if !h.awaitListener(t, s, c.space, c.port) {
			t.Fatalf("the server does not listen:\n%v", s)
		}
		h.fails(t, h.start(t, h.path(goSide, c.program), strings.Fields(c.same)...), "another id has that ")
		h.interrupt(t, s)
	}
}

// disagree tests ends with different options. A C program must end with the given
// status.
func (h *host) disagree(t *testing.T) {
	const any = -2
	for _, c := range []struct {
		name, space    string
		pair           pair
		server, client cmEnd  // out must occur in the output of our program
		says           string // by our program
		status         int    // of the C program
	}{
		{"rping_size", "TCP", pair{goSide, cSide}, cmEnd{program: "rping", args: "-s -a {addr} -p {port}"},
			cmEnd{program: "rping", args: "-c -C 3 -S 100 -a {addr} -p {port}"}, "use the same -S at both ends", any},
		{"rping_size", "TCP", pair{cSide, goSide}, cmEnd{program: "rping", args: "-s -a {addr} -p {port}"},
			cmEnd{program: "rping", args: "-c -C 3 -S 100 -a {addr} -p {port}"}, "the peer has disconnected", 255},
		{"ucmatose_connections", "TCP", pair{goSide, cSide},
			cmEnd{program: "ucmatose", args: "-b {addr} -p {port}", out: "cmatose: failing connection request\n"},
			cmEnd{program: "ucmatose", args: "-c 3 -s {addr} -p {port}"}, "the peer has disconnected", 28},
		{"ucmatose_count", "TCP", pair{goSide, cSide}, cmEnd{program: "ucmatose", args: "-C 20 -b {addr} -p {port}"},
			cmEnd{program: "ucmatose", args: "-s {addr} -p {port}"}, "use the same -C at both ends", 0},
		{"ucmatose_size", "TCP", pair{goSide, cSide}, cmEnd{program: "ucmatose", args: "-S 200 -b {addr} -p {port}"},
			cmEnd{program: "ucmatose", args: "-s {addr} -p {port}"}, "use the same -S at both ends", 0},
		{"ucmatose_size", "TCP", pair{cSide, goSide}, cmEnd{program: "ucmatose", args: "-S 200 -b {addr} -p {port}"},
			cmEnd{program: "ucmatose", args: "-s {addr} -p {port}"}, "use the same -S at both ends", any},
		{"udaddy_size", "UDP", pair{goSide, cSide}, cmEnd{program: "udaddy", args: "-S 5000 -b {addr}",
			out: "udaddy: message_size 5000 is larger than active mtu 4096\n"},
			cmEnd{program: "udaddy", args: "-s {addr}"}, "a datagram of 5000 bytes is too long", 2},
	} {
		t.Run(c.name+"/"+c.pair.String(), func(t *testing.T) {
			s, cl := h.beginCM(t, cmCase{c.name, c.space, c.server, c.client}, c.pair, address)
			program.Finish(s, cl)
			ours, theirs := s, cl
			if c.pair.server == cSide {
				ours, theirs = cl, s
			}
			h.fails(t, ours, c.says)
			if out := c.server.out; !strings.Contains(ours.Stdout.String(), out) {
				t.Errorf("no %q:\n%v", out, ours)
			}
			if status := theirs.Status(); status < 0 || c.status != any && status != c.status {
				t.Errorf("status %d, not %d:\n%v", status, c.status, theirs)
			}
		})
	}
}

// interruptedServers interrupts servers that wait for a client.
func (h *host) interruptedServers(t *testing.T) {
	for _, c := range []struct{ program, args, space, port string }{
		{"rping", "-s -a ::0 -p 20011", "TCP", "20011"},
		{"rping", "-s -P -p 20012", "TCP", "20012"},
		{"ucmatose", "-p 20013", "TCP", "20013"},
		{"udaddy", "-b " + address6, "UDP", "7174"},
		{"rdma_server", "-p 20014", "TCP", "20014"},
	} {
		s := h.start(t, h.path(goSide, c.program), strings.Fields(c.args)...)
		if !h.awaitListener(t, s, c.space, c.port) {
			t.Fatalf("the server does not listen:\n%v", s)
		}
		h.signal(t, s, syscall.SIGINT)
		h.fails(t, s, "interrupted")
	}
	p := h.mckey(t, goSide, "-m 239.7.0.99 -b %s", address)
	if !p.Stdout.Await("receiving data transfers") {
		t.Fatalf("the receiver does not join:\n%v", p)
	}
	h.signal(t, p, syscall.SIGINT)
	if err := p.Wait(); err == nil || p.Status() != 1 || !strings.Contains(p.Stdout.String(), "interrupted") {
		t.Errorf("no \"interrupted\":\n%v: %v", p, err)
	}
}

func (h *host) signal(t *testing.T, p *program.Process, sig syscall.Signal) {
	t.Helper()
	if err := p.Cmd.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// endless is an rping without a limit on the number of pings.
var endless = cmCase{space: "TCP",
	server: cmEnd{program: "rping", args: "-s -v -a {addr} -p {port}"},
	client: cmEnd{program: "rping", args: "-c -v -V -a {addr} -p {port}"},
}

// testCMEnds stops one end during the pings. The other one must notice.
func (h *host) testCMEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		pair
		sig    syscall.Signal
		client bool // the client, not the server, gets the signal
	}{
		{"client_killed", pair{goSide, cSide}, syscall.SIGKILL, true},
		{"client_killed", pair{goSide, goSide}, syscall.SIGKILL, true},
		{"server_killed", pair{cSide, goSide}, syscall.SIGKILL, false},
		{"server_killed", pair{goSide, goSide}, syscall.SIGKILL, false},
		{"client_interrupted", pair{cSide, goSide}, syscall.SIGINT, true},
		{"server_interrupted", pair{goSide, cSide}, syscall.SIGTERM, false},
	} {
		t.Run(c.name+"/"+c.pair.String(), func(t *testing.T) {
			s, cl := h.beginCM(t, endless, c.pair, address)
			h.stop(t, s, cl, c.pair, c.sig, c.client)
		})
	}
	t.Run("persistent", h.persistentServer)
}

func (h *host) stop(t *testing.T, s, cl *program.Process, p pair, sig syscall.Signal, client bool) {
	ours := cl // the Go end, which prints immediately; C prints at exit
	if p.client == cSide {
		ours = s
	}
	if !ours.Stdout.Await("rdma-ping-9: ") {
		t.Fatalf("it does not work:\n%v\n%v", s, cl)
	}
	stopped, other, side, says := s, cl, p.client, clientLeft[0]
	if client {
		stopped, other, side, says = cl, s, p.server, serverLeft[0]
	}
	h.signal(t, stopped, sig)
	if side == cSide { // it may hang after it has printed this
		other.Stderr.Await(says)
		other.Kill()
	}
	program.Finish(s, cl)
	if sig == syscall.SIGKILL {
		says = "" // its memory may be released before its QP, so that the peer's request fails
	} else {
		h.fails(t, stopped, "interrupted")
	}
	// A server whose client disconnects between two pings succeeds. The status of
	// the C program, which may be killed by a signal, is not checked.
	if status := other.Status(); side == goSide && (status < 0 || !client && status != 1) {
		t.Errorf("status %d:\n%v", status, other)
	}
	if said := other.Stderr.String(); said == "" || !strings.Contains(said, says) {
		t.Errorf("no %q:\n%v", says, other)
	}
}

// persistentServer tests servers with -P that serve clients one after the other and
// concurrently.
func (h *host) persistentServer(t *testing.T) {
	for _, server := range []side{goSide, cSide} {
		t.Run(string(server)+"-server", func(t *testing.T) {
			port := h.port()
			s := h.start(t, h.path(server, "rping"), "-s", "-P", "-a", "::0", "-p", port)
			if !h.awaitListener(t, s, "TCP", port) {
				t.Fatalf("the server does not listen:\n%v", s)
			}
			want := cmEnd{out: pings("ping data", 10, 64), noise: clientLeft}
			for _, sides := range [][]side{{cSide}, {goSide}, {goSide, cSide, goSide}} {
				var clients []*program.Process
				for _, side := range sides {
					clients = append(clients, h.start(t, h.path(side, "rping"), "-c", "-vV", "-C", "10", "-a", address, "-p", port))
				}
				for _, c := range clients {
					if err := c.Wait(); err != nil {
						t.Errorf("%v: %v", c, err)
					}
					want.check(t, c)
				}
			}
			h.interrupt(t, s)
			if n := strings.Count(s.Stderr.String(), serverLeft[0]); n != 5 {
				t.Errorf("%d clients have left, not 5:\n%v", n, s)
			}
			if says := "interrupted"; server == goSide && !slices.Contains(strings.Fields(s.Stderr.String()), says) {
				t.Errorf("no %q:\n%v", says, s)
			}
		})
	}
}
