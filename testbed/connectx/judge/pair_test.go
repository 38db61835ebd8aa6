//go:build vm

package main

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A game is a run of a pair of C programs. Both get the same arguments; the
// client also gets the server's address.
type game struct {
	program string
	args    string
	core    bool // run for all pairs of ends; others only for one
}

// String returns the game's name as a test.
func (g game) String() string { return strings.ReplaceAll(g.program+" "+g.args, " ", "_") }

// play runs the two programs. Both must succeed.
func (m *machines) play(t *testing.T, g game, server, client end) {
	port := m.port()
	s := program.StartOn(t, server.guest, &program.Terminal, g.program, g.arguments(m.place, server, port)...)
	if !m.awaitListener(t, server.guest, s, port) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	host := "127.0.0.1"
	if client.guest != server.guest {
		host = server.host
	}
	c := program.Start(t, client.guest, g.program, append(g.arguments(m.place, client, port), host)...)
	serverErr, clientErr := program.Finish(s, c)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	for _, p := range []*program.Process{s, c} {
		if complains.MatchString(p.Stdout.String() + p.Stderr.String()) {
			t.Errorf("it complains:\n%v", p)
		}
	}
	if figure := g.figure(); !strings.Contains(c.Stdout.String(), figure) {
		t.Errorf("there is no %q in what it prints:\n%v", figure, c)
	}
	t.Log(lastLine(c.Stdout.String()))
}

// arguments returns the arguments of one end.
func (g game) arguments(p place, e end, port int) []string {
	args := append([]string{"-d", e.device, "-p", strconv.Itoa(port)}, strings.Fields(g.args)...)
	if !strings.HasPrefix(g.program, "ibv_") {
		args = append(args, "-F") // the clock's frequency depends on the guest
	}
	if p.link == roce {
		option := "-x"
		if strings.HasPrefix(g.program, "ibv_") {
			option = "-g"
		}
		args = append(args, option, strconv.Itoa(e.gid))
	}
	return args
}

// complains matches error messages of programs. Several exit with status 0
// nevertheless.
var complains = regexp.MustCompile(`(?i)invalid data|error|fail|couldn't|unable`)

// figure returns what the client prints when it has succeeded.
func (g game) figure() string {
	args := strings.Fields(g.args)
	value := func(option string) string { return args[slices.Index(args, option)+1] }
	switch {
	case g.program == "ibv_xsrq_pingpong":
		return "" // it prints no figures
	case strings.HasPrefix(g.program, "ibv_"):
		return value("-n") + " iters in"
	case slices.Contains(args, "-a"):
		return "\n 8388608 "
	case slices.Contains(args, "-s"):
		return "\n " + value("-s") + " "
	}
	return "\n 8 " // bytes of an atomic
}

// awaitListener waits until a TCP port is open, or the program has exited.
func (m *machines) awaitListener(t *testing.T, g *vm.Guest, p *program.Process, port int) bool {
	t.Helper()
	w := program.Listening(t, g, port)
	defer w.Kill()
	select {
	case <-w.Ended:
		return w.Wait() == nil
	case <-p.Ended:
		return false
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	for _, line := range slices.Backward(lines) {
		if strings.ContainsAny(line, "0123456789") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}
