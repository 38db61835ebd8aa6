//go:build vm

package interop

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A cmCase is a server and a client of connections by IP address.
type cmCase struct {
	name           string
	space          string // the port space that the server listens in
	server, client cmEnd
}

// A cmEnd is a program with its expected output. In args, {addr} is the address and
// {port} a port that no other run uses.
type cmEnd struct {
	program string
	args    string
	out     string   // its standard output
	noise   []string // lines that may be on its standard error; others may not
}

// families lists the addresses with which each case is run.
var families = []struct{ name, addr string }{{"ipv4", address}, {"ipv6", address6}}

// testCM runs each case with our program as the server, as the client and as both.
// Over IPv4 it also runs the C program with itself, which validates the expected
// output.
func (h *host) testCM(t *testing.T) {
	h.testCMCases(t, slices.Concat(rpingCases, ucmatoseCases, udaddyCases, rdmaServerCases))
	if !h.brief {
		t.Run("mistakes", h.testCMMistakes)
	}
	t.Run("ends", h.testCMEnds)
}

func (h *host) testCMCases(t *testing.T, cases []cmCase) {
	seen := map[string]bool{} // programs, over IPv6
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for _, p := range pairs {
				for _, f := range families {
					if f.addr != address && (p == pair{cSide, cSide} || h.brief && seen[c.server.program]) {
						continue
					}
					t.Run(p.String()+"/"+f.name, func(t *testing.T) {
						skipAlike(t, p, p.server == goSide && !seen[c.server.program])
						further := f.addr != address && seen[c.server.program]
						h.skipRepeat(t, p.server != p.client && !further)
						if further {
							vm.SkipRepeat(t, "ipv4, and another case of the program with ipv6")
						}
						h.runCM(t, c, p, f.addr)
					})
				}
			}
			seen[c.server.program] = true
		})
	}
}

// pairs lists all combinations of server and client.
var pairs = []pair{{cSide, cSide}, {goSide, cSide}, {cSide, goSide}, {goSide, goSide}}

// runCM runs a case with a pair of programs.
func (h *host) runCM(t *testing.T, c cmCase, p pair, addr string) {
	s, cl := h.beginCM(t, c, p, addr)
	serverErr, clientErr := program.Finish(s, cl)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, cl)
	}
	c.server.check(t, s)
	c.client.check(t, cl)
}

// beginCM starts a case's server, and the client when the server listens.
func (h *host) beginCM(t *testing.T, c cmCase, p pair, addr string) (s, cl *program.Process) {
	t.Helper()
	port := h.port()
	if !strings.Contains(c.server.args, "{port}") {
		port = defaultPort[c.server.program]
	}
	return h.begin(t, h.cmEnd(c.server, p.server, addr, port),
		func(s *program.Process) bool { return h.awaitListener(t, s, c.space, port) },
		h.cmEnd(c.client, p.client, addr, port))
}

// defaultPort lists the ports on which programs listen by default.
var defaultPort = map[string]string{"rping": "7174", "udaddy": "7174", "ucmatose": "7471", "rdma_server": "7471"}

func (h *host) cmEnd(e cmEnd, s side, addr, port string) end {
	args := strings.NewReplacer("{addr}", addr, "{port}", port).Replace(e.args)
	return end{path: h.path(s, e.program), args: strings.Fields(args)}
}

// awaitListener returns when the kernel has a listener on the port, or when the
// program has ended, possibly because of its time limit. C programs do not print
// that they listen.
func (h *host) awaitListener(t *testing.T, p *program.Process, space, port string) bool {
	t.Helper()
	for p.Running() {
		for _, id := range h.ids(t) {
			if id.State == "LISTEN" && id.Space == space && strings.HasSuffix(id.Src, ":"+port) {
				return true
			}
		}
	}
	return false
}

// A cmID is an id of the kernel's connection manager.
type cmID struct {
	State string
	Space string `json:"ps"`
	Src   string `json:"src-addr"`
	Dst   string `json:"dst-addr"`
}

func (h *host) ids(t *testing.T) []cmID {
	t.Helper()
	out := h.output(t, "rdma", "-j", "resource", "show", "cm_id")
	var ids []cmID
	if err := json.Unmarshal([]byte(out), &ids); err != nil && strings.TrimSpace(out) != "" {
		t.Fatalf("rdma resource show cm_id: %v\n%s", err, out)
	}
	return ids
}

// check compares a program's output with the expected output.
func (e cmEnd) check(t *testing.T, p *program.Process) {
	t.Helper()
	if got := p.Stdout.String(); got != e.out {
		t.Errorf("got:\n%v\nwant:\n%s", p, e.out)
	}
	for line := range strings.Lines(p.Stderr.String()) {
		if !slices.Contains(e.noise, strings.TrimSpace(line)) {
			t.Errorf("%q on standard error:\n%v", strings.TrimSpace(line), p)
		}
	}
}
