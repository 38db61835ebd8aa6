//go:build vm

package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

type game = games.Game

// play runs the two programs. Both must succeed.
func (m *machines) play(t *testing.T, g game, server, client end) {
	port := m.port()
	s := program.StartOn(t, server.guest, &program.Terminal, g.Program, argumentsOf(g, m.place, server, port)...)
	if !m.awaitListener(t, server.guest, s, port) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	host := "127.0.0.1"
	if client.guest != server.guest {
		host = server.host
	}
	c := program.Start(t, client.guest, g.Program, append(argumentsOf(g, m.place, client, port), host)...)
	serverErr, clientErr := program.Finish(s, c)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	for _, p := range []*program.Process{s, c} {
		if games.Complaint.MatchString(p.Stdout.String() + p.Stderr.String()) {
			t.Errorf("it complains:\n%v", p)
		}
	}
	if figure := g.Figure(); !strings.Contains(c.Stdout.String(), figure) {
		t.Errorf("there is no %q in what it prints:\n%v", figure, c)
	}
	t.Log(lastLine(c.Stdout.String()))
}

// arguments returns the arguments of one end.
func argumentsOf(g game, p place, e end, port int) []string {
	args := append([]string{"-d", e.device, "-p", strconv.Itoa(port)}, strings.Fields(g.Args)...)
	if !strings.HasPrefix(g.Program, "ibv_") {
		args = append(args, "-F") // the clock's frequency depends on the guest
	}
	if p.link == roce {
		option := "-x"
		if strings.HasPrefix(g.Program, "ibv_") {
			option = "-g"
		}
		args = append(args, option, strconv.Itoa(e.gid))
	}
	return args
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
