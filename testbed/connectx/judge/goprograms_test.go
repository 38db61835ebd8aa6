//go:build vm

package main

import (
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/fabric"
	"github.com/goverbs/goverbs/testbed/connectx/games"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/testbed/vm/program"
)

// goPrograms are the Go programs by the names of their C counterparts.
var goPrograms = map[string]string{
	"ibv_rc_pingpong": "cmd/rcpingpong", "ibv_uc_pingpong": "cmd/ucpingpong", "ibv_ud_pingpong": "cmd/udpingpong",
	"rping": "cmd/rping", "ucmatose": "cmd/ucmatose",
}

// goGames are run with a Go program and a C program, between two guests.
var goGames = []game{
	{Program: "ibv_rc_pingpong", Args: "-c -e -s 4096 -n 100", Core: true},
	{Program: "ibv_uc_pingpong", Args: "-c -s 4096 -n 100", Core: true},
	{Program: "ibv_ud_pingpong", Args: "-c -e -s 1024 -n 100", Core: true},
}

// testGo runs Go programs on the software ConnectX with C programs on another
// one and, with RoCE, on rxe; also while the network loses and reorders
// packets.
func (m *machines) testGo(t *testing.T) {
	for name, pkg := range goPrograms {
		file := vm.BuildProgram(t, "github.com/goverbs/goverbs/"+pkg, "", "amd64")
		for _, g := range m.guests {
			path, err := g.Install(file)
			if err != nil {
				t.Fatal(err)
			}
			m.ours[name] = path // the same path in each guest
		}
	}
	ours, theirs := m.end(t, 0, "mlx5_0", "10.9.0.1"), m.end(t, 1, "mlx5_0", "10.9.0.2")
	m.testGoWith(t, "mlx5", ours, theirs)
	if m.link != roce {
		return
	}
	toRXE, rxe := m.end(t, 0, "mlx5_0", "10.9.1.1"), m.end(t, 1, "rxe0", "10.9.1.2")
	m.testGoWith(t, "rxe", toRXE, rxe)
	t.Run("loss", func(t *testing.T) {
		hits := m.withFaults(t, bad(m.world.Devices[0].Name, card)...)
		for i, peer := range []end{theirs, rxe} {
			at := []end{ours, toRXE}[i]
			name := []string{"mlx5", "rxe"}[i]
			t.Run(name, func(t *testing.T) {
				m.playLossy(t, peer, at, false)
				m.playLossy(t, at, peer, true)
			})
		}
		if n := hits(); n[fabric.Drop] == 0 || n[fabric.Reorder] == 0 {
			t.Errorf("there was no fault of a kind: %v", n)
		}
	})
}

func (m *machines) testGoWith(t *testing.T, name string, ours, theirs end) {
	t.Run("with_"+name, func(t *testing.T) {
		for _, g := range goGames {
			t.Run(g.String(), func(t *testing.T) {
				t.Run("go_server", func(t *testing.T) { m.playGo(t, g, ours, theirs, true) })
				t.Run("go_client", func(t *testing.T) { m.playGo(t, g, theirs, ours, false) })
			})
		}
		if m.link != roce {
			return
		}
		for _, g := range cmGames {
			if m.ours[g.name] == "" {
				continue
			}
			t.Run(g.name, func(t *testing.T) {
				server, client := g, g
				server.server = m.ours[g.name] + strings.TrimPrefix(g.server, g.name)
				t.Run("go_server", func(t *testing.T) { m.playCM(t, server, ours, theirs) })
				client.client = m.ours[g.name] + strings.TrimPrefix(g.client, g.name)
				t.Run("go_client", func(t *testing.T) { m.playCM(t, client, theirs, ours) })
			})
		}
	})
}

// playLossy requires success only of the client, which has then sent and
// received everything. The server may wait for a lost acknowledgment of a
// client that has exited.
func (m *machines) playLossy(t *testing.T, server, client end, goServer bool) {
	g := game{Program: "ibv_rc_pingpong", Args: "-c -e -s 1024 -n 300", Core: true}
	s, c := m.beginGo(t, g, server, client, goServer)
	if err := c.Wait(); err != nil || !strings.Contains(c.Stdout.String(), g.Figure()) ||
		games.Complaint.MatchString(c.Stdout.String()) {
		t.Errorf("client: %v\n%v\nserver:\n%v", err, c, s)
	}
	t.Log(lastLine(c.Stdout.String()))
	s.Kill()
	<-s.Ended
	if games.Complaint.MatchString(s.Stdout.String()) {
		t.Errorf("server:\n%v", s)
	}
}

// beginGo starts both programs.
func (m *machines) beginGo(t *testing.T, g game, server, client end, goServer bool) (s, c *program.Process) {
	t.Helper()
	port := m.port()
	path := map[bool]string{true: m.ours[g.Program], false: g.Program}
	s = program.StartOn(t, server.guest, &program.Terminal, path[goServer], argumentsOf(g, m.place, server, port)...)
	if !m.awaitListener(t, server.guest, s, port) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	args := append(argumentsOf(g, m.place, client, port), server.host)
	return s, program.Start(t, client.guest, path[!goServer], args...)
}

// playGo is play with a Go program at one end.
func (m *machines) playGo(t *testing.T, g game, server, client end, goServer bool) {
	s, c := m.beginGo(t, g, server, client, goServer)
	serverErr, clientErr := program.Finish(s, c)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	for _, p := range []*program.Process{s, c} {
		if games.Complaint.MatchString(p.Stdout.String()) {
			t.Errorf("it complains:\n%v", p)
		}
		if figure := g.Figure(); !strings.Contains(p.Stdout.String(), figure) {
			t.Errorf("there is no %q in what it prints:\n%v", figure, p)
		}
	}
	t.Log(lastLine(c.Stdout.String()))
}
