//go:build vm

package interop

import (
	"fmt"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm"
)

// A side is one of the two programs.
type side string

const (
	goSide side = "go"
	cSide  side = "c"
)

// path is what starts a side's program, which has the C program's name.
func (h *host) path(s side, name string) string {
	if s == goSide {
		return h.ours[name]
	}
	return name
}

// A pair is who plays whom.
type pair struct{ server, client side }

func (p pair) String() string { return fmt.Sprintf("%s-server/%s-client", p.server, p.client) }

// An end is a program of a pair with its arguments. On a terminal its output
// comes line by line.
type end struct {
	path string
	args []string
	tty  *vm.WindowSize
}

var terminal = vm.WindowSize{Rows: 24, Cols: 200}

// begin starts the server, and the client when the server is ready.
func (h *host) begin(t *testing.T, server end, ready func(*process) bool, client end) (s, c *process) {
	t.Helper()
	s = h.startOn(t, server.tty, server.path, server.args...)
	if !ready(s) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	return s, h.startOn(t, client.tty, client.path, client.args...)
}

// patience is for how long an end may run on when the other has ended. C
// programs whose peer has failed wait for ever.
const patience = 30 * time.Second

// finish waits until both have ended.
func finish(s, c *process) (serverErr, clientErr error) {
	other := s
	select {
	case <-s.ended:
		other = c
	case <-c.ended:
	}
	select {
	case <-other.ended:
	case <-time.After(patience):
		other.cancel()
	}
	return s.wait(), c.wait()
}
