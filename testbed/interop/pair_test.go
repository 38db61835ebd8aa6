//go:build vm

package interop

import (
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A side is one of the two programs.
type side string

const (
	goSide side = "go"
	cSide  side = "c"
)

// path returns the command of a side's program, given the C program's name.
func (h *host) path(s side, name string) string {
	if s == goSide {
		return h.ours[name]
	}
	return name
}

// A pair says which side is the server and which is the client.
type pair struct{ server, client side }

func (p pair) String() string { return fmt.Sprintf("%s-server/%s-client", p.server, p.client) }

// skipAlike skips a pair of one language that is not the first of its program, unless all tests run. Our programs with
// each other are tested by the packages' device tests as well, and most of C's in memory (testbed/cshim).
func skipAlike(t *testing.T, p pair, first bool) {
	t.Helper()
	if p.server == p.client && !first {
		vm.SkipRepeat(t, "the pairs of C and Go, whose outputs are the same")
	}
}

// An end is a program of a pair with its arguments. On a terminal its output is line
// buffered.
type end struct {
	path string
	args []string
	tty  *vm.WindowSize
}

// begin starts the server, and the client when the server is ready.
func (h *host) begin(t *testing.T, server end, ready func(*program.Process) bool, client end) (s, c *program.Process) {
	t.Helper()
	s = program.StartOn(t, h.guest, server.tty, server.path, server.args...)
	if !ready(s) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	return s, program.StartOn(t, h.guest, client.tty, client.path, client.args...)
}
