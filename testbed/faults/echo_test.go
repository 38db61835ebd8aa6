//go:build vm

package faults

import (
	"fmt"
	"regexp"
	"strconv"
	"syscall"
	"testing"
)

// testEcho has clients that send datagrams to a server that they find by multicast, while something happens.
func (s *services) testEcho(t *testing.T) {
	const found = "found a server"
	for _, c := range []struct {
		name   string
		pings  int
		happen func(t *testing.T, server, client *process) *process // returns the server that takes its place
	}{
		{"loss", 100, func(_ *testing.T, server, _ *process) *process { return server }},
		{"SIGSTOP of the server", 1000, func(t *testing.T, server, _ *process) *process { stand(t, server); return server }},
		{"SIGKILL and restart of the server", 1000, func(t *testing.T, server, _ *process) *process {
			s.kill(t, server)
			return s.echo(t)
		}},
		{"removal of the server's device", 1000, func(t *testing.T, server, _ *process) *process {
			s.devices.remove(t)
			fails(t, server, gone...)
			s.devices.restore(t)
			return s.echo(t)
		}},
		{"SIGKILL of a client", 100, func(t *testing.T, server, client *process) *process {
			s.kill(t, client)
			return server
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s.skipRepeat(t, c.name)
			if c.name == "loss" {
				s.devices.lose(t, 5)
			}
			server := s.echo(t)
			ping := func() *process {
				return s.start(t, 1, "echo-ud", "-b", s.ends[1].address, "-n", strconv.Itoa(c.pings), "ping")
			}
			client := ping()
			if _, ok := client.await(found, 1); !ok {
				t.Fatal(client)
			}
			server = c.happen(t, server, client)
			if c.name == "SIGKILL of a client" {
				client = ping()
			}
			s.echoed(t, client, c.pings)
			signal(t, server, syscall.SIGTERM)
			says(t, server, "")
		})
	}
}

// echo starts the server.
func (s *services) echo(t *testing.T) *process {
	t.Helper()
	return s.start(t, 0, "echo-ud", "-b", s.ends[0].address, "serve")
}

var counted = regexp.MustCompile(`(?m)^(\d+) pings, (\d+) lost;`)

// echoed checks that a client ends and that few of its datagrams were lost.
func (s *services) echoed(t *testing.T, client *process, pings int) {
	t.Helper()
	says(t, client, fmt.Sprint(pings, " pings, "))
	t.Log(client)
	if m := counted.FindStringSubmatch(client.String()); m != nil {
		if lost, err := strconv.Atoi(m[2]); err != nil || lost > max(pings/3, 20) {
			t.Errorf("%d of %d are lost (%v)", lost, pings, err)
		}
	}
}
