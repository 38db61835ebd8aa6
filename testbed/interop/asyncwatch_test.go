//go:build vm

package interop

import (
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

const asyncwatch = "ibv_asyncwatch"

// testAsyncwatch compares the output of ibv_asyncwatch and asyncwatch on one device
// while its network interface goes down, comes up and gets an address. It uses a
// separate device, because an interface that goes down loses addresses and routes.
func (h *host) testAsyncwatch(t *testing.T) {
	ip := func(args string) { h.output(t, "ip", strings.Fields(args)...) }
	ip("link add d1 type dummy")
	ip("addr add 10.91.0.1/24 dev d1")
	ip("link set d1 up")
	h.output(t, "rdma", strings.Fields("link add rxe1 type rxe netdev d1")...)
	c := h.start(t, asyncwatch, "-d", "rxe1")
	g := h.start(t, h.path(goSide, asyncwatch), "-d", "rxe1")
	defer func() { // not Cleanup, which runs too late for commands
		for _, p := range []*program.Process{c, g} {
			p.Kill()
			<-p.Ended // rxe1 is removed after its last user
		}
		h.output(t, "rdma", strings.Fields("link del rxe1")...)
		ip("link del d1")
	}()
	both := func(text string, n int) {
		t.Helper()
		for _, p := range []*program.Process{c, g} {
			if !p.Stdout.AwaitTimes(text, n) {
				t.Fatalf("no %q, the %d.: %v", text, n, p)
			}
		}
	}
	both("rxe1: async event FD ", 1)
	ip("addr add 10.91.0.2/24 dev d1")
	both("  event_type IBV_EVENT_GID_CHANGE (18), port 1\n", 1)
	for lap := 1; lap <= 2; lap++ {
		ip("link set d1 down")
		both("  event_type IBV_EVENT_PORT_ERR (10), port 1\n", lap)
		ip("link set d1 up")
		both("  event_type IBV_EVENT_PORT_ACTIVE (9), port 1\n", lap)
	}
	for _, p := range []*program.Process{c, g} {
		if err := p.Cmd.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		_ = p.Wait() // the C program is killed by the signal
	}
	if d := cmp.Diff(watchedEvents(c.Stdout.String()), watchedEvents(g.Stdout.String())); d != "" {
		t.Errorf("(-ibv_asyncwatch +asyncwatch)\n%s", d)
	}
	h.asyncwatchMistakes(t)
}

var descriptor = regexp.MustCompile(`FD \d+`)

// watchedEvents returns the program's output without the descriptor number. Each
// GID change appears once, because its order relative to another event at the same
// time is undefined.
func watchedEvents(out string) []string {
	const change = "IBV_EVENT_GID_CHANGE"
	var lines []string
	changed := ""
	for line := range strings.Lines(descriptor.ReplaceAllString(out, "FD n")) {
		if strings.Contains(line, change) {
			changed = line
			continue
		}
		lines = append(lines, line)
	}
	return append(lines, changed)
}

// asyncwatchMistakes compares exit statuses.
func (h *host) asyncwatchMistakes(t *testing.T) {
	for _, args := range []string{"-d rxe7", "-x", "-h"} {
		c := h.start(t, asyncwatch, strings.Fields(args)...)
		g := h.start(t, h.path(goSide, asyncwatch), strings.Fields(args)...)
		_, _ = c.Wait(), g.Wait() // the status is compared
		if c.Status() != g.Status() {
			t.Errorf("%v ends with %d, %v with %d", c, c.Status(), g, g.Status())
		}
		usage := strings.ReplaceAll(c.Stdout.String(), asyncwatch, "asyncwatch")
		if args == "-h" && usage != g.Stdout.String() {
			t.Errorf("usage: %s", cmp.Diff(usage, g.Stdout.String()))
		}
	}
}
