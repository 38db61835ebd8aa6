//go:build vm

package main

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// A cmGame is a run of two programs that connect by rdma_cm. In the arguments,
// {server} and {client} are the ends' addresses.
type cmGame struct {
	name           string
	server, client string
	ready          string // the server's id in the kernel when it is ready
	done           string // the last line of both, if they have one
}

var cmGames = []cmGame{
	{"rping", "rping -s -v -a {server} -C 10", "rping -c -v -V -C 10 -a {server}", "LISTEN", ""},
	{"rping_long", "rping -s -a {server} -S 65535 -C 5", "rping -c -V -C 5 -S 65535 -I {client} -a {server}", "LISTEN",
		""},
	{"ucmatose", "ucmatose -b {server} -c 4 -C 7 -S 3333", "ucmatose -s {server} -b {client} -c 4 -C 7 -S 3333", "LISTEN",
		"return status 0"},
	{"udaddy", "udaddy -b {server} -c 3 -C 9 -S 1000", "udaddy -s {server} -b {client} -c 3 -C 9 -S 1000", "LISTEN",
		"return status 0"},
}

// gidGames are for InfiniBand: the addresses are GIDs (AF_IB).
var gidGames = []cmGame{
	{"ucmatose", "ucmatose -f gid -b {server} -c 4 -C 7 -S 3333",
		"ucmatose -f gid -s {server} -b {client} -c 4 -C 7 -S 3333", "LISTEN", "return status 0"},
	{"ucmatose_ib", "ucmatose -f gid -P ib -b {server} -C 3", "ucmatose -f gid -P ib -s {server} -b {client} -C 3",
		"LISTEN", "return status 0"},
	{"udaddy", "udaddy -f gid -b {server} -c 3 -C 9 -S 1000", "udaddy -f gid -s {server} -b {client} -c 3 -C 9 -S 1000",
		"LISTEN", "return status 0"},
}

// routesPython gives librdmacm paths.
//
//go:embed testdata/routes.py
var routesPython string

// testGIDs runs gidGames between two devices of a guest. There is no subnet
// manager to resolve paths: librdmacm asks the program first, and passes its
// path to the kernel (RDMA_OPTION_IB_PATH).
func (m *machines) testGIDs(t *testing.T, server, client end) {
	routes := program.Start(t, server.guest, "python3", "-c", routesPython)
	defer routes.Kill()
	if !routes.Stdout.Await("ready") {
		t.Fatalf("the path resolver has failed:\n%v", routes)
	}
	for _, e := range []*end{&server, &client} {
		e.ip = strings.TrimSpace(m.output(t, e.guest, "cat /sys/class/infiniband/"+e.device+"/ports/1/gids/0"))
	}
	for _, g := range gidGames {
		t.Run(g.name, func(t *testing.T) { m.playCM(t, g, server, client) })
	}
}

// testCM runs all programs at two ends.
func (m *machines) testCM(t *testing.T, server, client end) {
	for _, g := range cmGames {
		t.Run(g.name, func(t *testing.T) { m.playCM(t, g, server, client) })
	}
	t.Run("mckey", func(t *testing.T) { m.playMulticast(t, server, client) })
}

// playCM runs two programs that connect to each other.
func (m *machines) playCM(t *testing.T, g cmGame, server, client end) {
	address := strings.NewReplacer("{server}", server.ip, "{client}", client.ip)
	start := func(e end, line string) *program.Process {
		args := strings.Fields(address.Replace(line))
		return program.StartOn(t, e.guest, &program.Terminal, args[0], args[1:]...)
	}
	s := start(server, g.server)
	if !m.awaitID(t, server, s, g.ready) {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	c := start(client, g.client)
	serverErr, clientErr := program.Finish(s, c)
	if serverErr != nil || clientErr != nil {
		t.Fatalf("server: %v\n%v\nclient: %v\n%v", serverErr, s, clientErr, c)
	}
	for _, p := range []*program.Process{s, c} {
		if !strings.HasSuffix(p.Stdout.String(), g.done+"\n") && g.done != "" {
			t.Errorf("the last line is not %q:\n%v", g.done, p)
		}
	}
}

// awaitID waits until the kernel has an rdma_cm id in a state, or the program
// has exited. C programs do not report that they listen.
func (m *machines) awaitID(t *testing.T, e end, p *program.Process, state string) bool {
	t.Helper()
	found := fmt.Sprintf("rdma resource show cm_id | grep -q 'state %s.*src-addr %s:'", state, e.ip)
	if m.link == ib { // it does not list AF_IB ids; but a server that waits for events listens
		found = "grep -q ucma_get_event /proc/[0-9]*/wchan"
	}
	w := program.Start(t, e.guest, "sh", "-c", "until "+found+"; do :; done")
	defer w.Kill()
	select {
	case <-w.Ended:
		return w.Wait() == nil
	case <-p.Ended:
		return false
	}
}

// playMulticast sends with mckey to a group that another mckey has joined. The
// sender exits when it has posted, which drops messages that were not sent yet.
// So strace slows it down, and it sends more than are expected.
func (m *machines) playMulticast(t *testing.T, receiver, sender end) {
	const group, count = "239.7.0.1", 10
	r := program.StartOn(t, receiver.guest, &program.Terminal, "nice", "-n", "19", "mckey", "-m", group, "-C",
		fmt.Sprint(count), "-b", receiver.ip)
	if !r.Stdout.Await("joined dgid: ::ffff:" + group) {
		t.Fatalf("the receiver does not join:\n%v", r)
	}
	for range 5 {
		s := program.Start(t, sender.guest, "strace", "-qq", "-e", "trace=write", "-o", "/dev/null",
			"mckey", "-s", "-m", group, "-C", fmt.Sprint(20*count), "-b", sender.ip)
		if err := s.Wait(); err != nil || !strings.Contains(s.Stdout.String(), "return status 0") {
			t.Fatalf("%v: %v", s, err)
		}
		select {
		case <-r.Ended:
			if err := r.Wait(); err != nil || !strings.Contains(r.Stdout.String(), "return status 0") {
				t.Errorf("%v: %v", r, err)
			}
			return
		case <-time.After(5 * time.Second): // most were lost
		}
	}
	t.Errorf("too little arrives:\n%v", r)
}
