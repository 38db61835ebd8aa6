package cshim

import (
	"bytes"
	"net"
	"os/exec"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/testbed/connectx/games"
)

// Play runs the two programs of a game on devices of a fabric, with an entry of their GID tables, and fails the test
// unless both succeed.
func Play(t testing.TB, g games.Game, gid string, server, client *Host) {
	t.Helper()
	args := append(strings.Fields(g.Args), "-p", freePort(t))
	if strings.HasPrefix(g.Program, "ibv_") {
		args = append(args, "-g", gid)
	} else {
		args = append(args, "-F", "-x", gid)
	}
	c := server.Command(g.Program, append(args, "-d", server.device)...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	text := join(t, func() *exec.Cmd {
		return client.Command(g.Program, append(args, "-d", client.device, "127.0.0.1")...)
	})
	if err := c.Wait(); err != nil {
		t.Errorf("the server: %v", err)
	}
	if text += out.String(); games.Complaint.MatchString(text) || !strings.Contains(text, g.Figure()) {
		t.Errorf("they print:\n%s", text)
	}
}

// join runs a program until its server, which has just been started, accepts connections, and returns what it
// prints.
func join(t testing.TB, command func() *exec.Cmd) string {
	t.Helper()
	for {
		out, err := command().CombinedOutput()
		switch {
		case err == nil:
			return string(out)
		case !strings.Contains(string(out), "Couldn't connect"):
			t.Errorf("the client: %v\n%s", err, out)
			return string(out)
		}
	}
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}
