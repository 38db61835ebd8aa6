//go:build vm

package interop

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A netcatCase copies a file between two netcats, from those sides that have input.
type netcatCase struct {
	name           string
	server, client string // options
	fromServer     bool
	fromClient     bool
}

var netcatCases = []netcatCase{
	{"to the server", "-l", "-N", false, true},
	{"from the server", "-l -N", "", true, false},
	{"both", "-l -N", "-N", true, true},
}

// netcatFile is what a side sends.
const netcatFile = "/tmp/nc-from"

// testNetcat runs nc of OpenBSD with librspreload, and rnc.
func (h *host) testNetcat(t *testing.T) {
	h.output(t, "sh", "-c", "head -c 1000001 /dev/urandom >"+netcatFile)
	for _, c := range netcatCases {
		for _, p := range pairs {
			t.Run(c.name+"/"+p.String(), func(t *testing.T) {
				skipAlike(t, p, false)
				h.skipRepeat(t, c.fromServer && c.fromClient && p.server != p.client)
				h.netcat(t, c, p)
			})
		}
	}
}

func (h *host) netcat(t *testing.T, c netcatCase, p pair) {
	port := h.port()
	from, to := netcatFile, "/tmp/nc-to-"+port
	server := h.netcatEnd(p.server, c.server, port, input(c.fromServer, from), to+".server")
	client := h.netcatEnd(p.client, c.client, port, input(c.fromClient, from), to+".client")
	s, cl := h.begin(t, server, func(s *program.Process) bool { return h.awaitListener(t, s, "TCP", port) }, client)
	if serverErr, clientErr := program.Finish(s, cl); serverErr != nil || clientErr != nil {
		t.Errorf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, cl)
	}
	h.output(t, "cmp", input(c.fromClient, from), to+".server")
	if p.server == cSide && c.fromServer && c.fromClient {
		return // nc -l ends when its client sends no more, even if it has more to send
	}
	h.output(t, "cmp", input(c.fromServer, from), to+".client")
}

// input returns the file that a side sends.
func input(sends bool, file string) string {
	if sends {
		return file
	}
	return "/dev/null"
}

// netcatEnd returns a netcat that sends a file and writes what it receives to another.
func (h *host) netcatEnd(s side, options, port, from, to string) end {
	path := h.ours["rnc"]
	if s == cSide {
		path = preloadRDMA + " nc.openbsd"
	}
	command := fmt.Sprintf("exec timeout 60 %s %s %s %s <%s >%s", path, options, address, port, from, to)
	return end{path: "sh", args: []string{"-c", command}}
}
