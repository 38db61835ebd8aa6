package cshim

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/foreign"
)

// A CMGame is a program of C's on librdmacm with its server: the arguments of both and those of each. %s is the
// server's address.
type CMGame struct{ Program, both, server, client string }

// CMGames are the programs of C's on librdmacm.
var CMGames = []CMGame{
	{"rping", "-C 20 -v", "-s -a %s", "-c -a %s"},
	{"rping", "-C 20 -V -S 60000 -p 7500", "-s -a %s", "-c -a %s"},
	{"ucmatose", "-C 20 -c 4", "-b %s", "-s %s"},
	{"udaddy", "-C 20", "-b %s", "-s %s"},
	{"rdma_client", "", "", "-s %s"},
	{"rdma_xclient", "", "", "-s %s"},
	{"rstream", "-S 1000 -I 10 -C 10", "-b %s", "-s %s"},
	{"riostream", "-S 1000 -I 10 -C 10", "-b %s", "-s %s"},
}

// PlayCM runs the two programs, the server at an address, and fails the test unless both succeed.
func PlayCM(t testing.TB, g CMGame, addr string, server, client *Host) {
	t.Helper()
	args := func(own string) []string { return strings.Fields(g.both + " " + strings.ReplaceAll(own, "%s", addr)) }
	s := server.Command(strings.Replace(g.Program, "client", "server", 1), args(g.server)...)
	var served bytes.Buffer
	s.Stdout, s.Stderr = &served, &served
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	server.Await(func(s foreign.Stats) bool { return s.Listens > 0 })
	out, err := client.Command(g.Program, args(g.client)...).CombinedOutput()
	if err != nil {
		t.Errorf("the client: %v", err)
		_ = s.Process.Kill() // Wait reports it
	}
	if err := s.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
	t.Logf("%s\n%s", out, served.String())
}
