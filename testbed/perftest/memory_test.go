//go:build vm

package perftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	bench "github.com/goverbs/goverbs/bench/perftest"
	"github.com/goverbs/goverbs/internal/sim/foreign"
	"github.com/goverbs/goverbs/testbed/cshim"
	"github.com/goverbs/goverbs/testbed/vm"
	"github.com/goverbs/goverbs/verbstest"
)

// TestInMemory compares the outputs of ours and C's with each other between two machines in memory. make test has here
// what it does not have in guests.
func TestInMemory(t *testing.T) {
	for _, c := range common {
		t.Run(c.String(), func(t *testing.T) {
			vm.SkipRepeat(t, "TestPerftest")
			compareInMemory(t, c)
		})
	}
	for _, c := range further {
		t.Run(c.String(), func(t *testing.T) { compareInMemory(t, c) })
	}
	for _, c := range ours {
		t.Run("ours/"+c.String(), func(t *testing.T) {
			server, client := playInMemory(t, pair{goSide, goSide}, c.run)
			c.check(t, server, client)
		})
	}
}

// groups are tests with multicast groups. On rxe, a datagram to a group does not reach another QP of the same device.
var groups = []run{
	{"send_lat", "-n 20 -g -x 1"},
	{"send_lat", "-n 20 -g -x 0 -e"},
	{"send_bw", "-n 100 -s 1024 -g -x 3 -M 0:0:0:0:0:0:0:0:0:0:255:255:239:1:2:3 -r 100"},
	{"send_bw", "-n 100 -s 64 -g -x 2 -M 255:0x0e:0:0:0:0:0:0:0:0:255:255:239:1:2:3 -r 100 -c RC"},
}

// TestMulticast compares tests with multicast groups.
func TestMulticast(t *testing.T) {
	for _, c := range groups {
		t.Run(c.String(), func(t *testing.T) { compareInMemory(t, c) })
	}
}

func compareInMemory(t *testing.T, c run) {
	goServer, cClient := playInMemory(t, pair{goSide, cSide}, c)
	cServer, goClient := playInMemory(t, pair{cSide, goSide}, c)
	for end, out := range map[string][2]string{"server": {cServer, goServer}, "client": {cClient, goClient}} {
		for i := range out {
			out[i] = differing.ReplaceAllString(form(c.comparable(out[i])), "")
		}
		if d := cmp.Diff(out[0], out[1]); d != "" {
			t.Errorf("%s: (-C +Go)\n%s", end, d)
		}
	}
}

// playInMemory runs two ends, which must both succeed, and returns what they print.
func playInMemory(t *testing.T, p pair, c run) (server, client string) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	if strings.Contains(c.args, "-g ") {
		n.Allow(verbstest.ReceiveOverlap) // receives use a page cyclically, and datagrams do not wait for them
	}
	a, b := n.Machine(), n.Machine()
	host := "127.0.0.1"
	byCM := strings.Contains(c.args, "-R") || strings.Contains(c.args, "-z")
	if byCM { // instead of TCP
		host = a.Addr().String()
	}
	args := append([]string{"-F", "-d", a.Device(), "-p", freePort(t)}, strings.Fields(c.args)...)
	if !strings.Contains(c.args, "-x ") {
		args = append(args, "-x", "3")
	}
	var finish func() (string, error)
	if p.server == goSide {
		finish = startGo(t, a, c.test, args)
	} else {
		finish = startC(t, a, c.test, args, byCM)
	}
	client, err := clientOf(t, p.client, b, c.test, append(args, host))
	if err != nil {
		t.Fatalf("the client: %v\n%s", err, client)
	}
	if server, err = finish(); err != nil {
		t.Fatalf("the server: %v\n%s", err, server)
	}
	return server, client
}

// startC starts C's server and returns a function that waits for it.
func startC(t *testing.T, m *verbstest.Machine, test string, args []string, byCM bool) func() (string, error) {
	t.Helper()
	h := cshim.New(t, m)
	c := h.Command("ib_"+test, args...)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	wait := sync.OnceValue(c.Wait)
	t.Cleanup(func() {
		_ = c.Process.Kill() // of a test that has failed
		_ = wait()
	})
	if byCM {
		h.Await(func(s foreign.Stats) bool { return s.Listens > 0 })
	}
	return func() (string, error) {
		err := wait()
		return out.String(), err
	}
}

// clientOf runs a client. Ours runs again until a server that has just been started accepts connections; C's is the
// client of ours, which listens.
func clientOf(t *testing.T, s side, m *verbstest.Machine, test string, args []string) (string, error) {
	t.Helper()
	if s == cSide {
		out, err := cshim.New(t, m).Command("ib_"+test, args...).CombinedOutput()
		return string(out), err
	}
	for {
		var out bytes.Buffer
		err := runGo(t.Context(), m, test, args, &out)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			return out.String(), err
		}
	}
}

// runGo runs our program in this process.
func runGo(ctx context.Context, m *verbstest.Machine, test string, args []string, out io.Writer) (err error) {
	which, ok := bench.TestNamed(test)
	if !ok {
		return fmt.Errorf("there is no test %q", test)
	}
	o, err := bench.Parse(which, args)
	if err != nil {
		return err
	}
	m.Run(func() { err = bench.Run(ctx, o, out) })
	return err
}

// startGo starts our server, waits until it listens, and returns a function that waits for its end.
func startGo(t *testing.T, m *verbstest.Machine, test string, args []string) func() (string, error) {
	t.Helper()
	s := &screen{waits: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	var err error
	go func() {
		defer close(ended)
		err = runGo(ctx, m, test, args, s)
	}()
	t.Cleanup(func() { cancel(); <-ended })
	select {
	case <-s.waits:
	case <-ended:
		t.Fatalf("the server has ended: %v\n%s", err, s.out.String())
	}
	return func() (string, error) {
		<-ended
		return s.out.String(), err
	}
}

// A screen has the output of one program.
type screen struct {
	out    bytes.Buffer
	waits  chan struct{} // closed when the program waits for a client
	closed bool
}

func (s *screen) Write(b []byte) (int, error) {
	s.out.Write(b)
	if !s.closed && strings.Contains(s.out.String(), "Waiting for client to connect") {
		s.closed = true
		close(s.waits)
	}
	return len(b), nil
}

// freePort returns a TCP port of the host that is free.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err := errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	return port
}
