//go:build vm

package interop

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// rsocketPeer is the program on package rsocket that is the other end of C programs with librspreload.
const rsocketPeer = "peer"

// rproxy forwards between rsockets and TCP.
const rproxy = "rproxy"

// testPreload has programs for TCP use rsockets with librspreload. They talk to the peer and, beside, to each other.
func (h *host) testPreload(t *testing.T) {
	t.Run("iperf3", h.testIperf3)
	t.Run("redis", h.testRedis)
}

// onRDMA returns the command of a C program on rsockets.
func onRDMA(name string, args ...string) end {
	return end{path: preloadRDMA, args: append([]string{name}, args...)}
}

// peer returns the command of the peer.
func (h *host) peer(args ...string) end { return end{path: h.ours[rsocketPeer], args: args} }

// listening starts a program that listens at a port with an rsocket.
func (h *host) listening(t *testing.T, e end, port string) *program.Process {
	t.Helper()
	p := h.start(t, e.path, e.args...)
	if !h.awaitListener(t, p, "TCP", port) {
		t.Fatalf("the server does not listen:\n%v", p)
	}
	return p
}

// proxy returns the command of our proxy.
func (h *host) proxy(from, to string) end {
	return end{path: h.ours[rproxy], args: []string{"-v", "--grace", "60", from, to}}
}

// endProxy ends a proxy, whose connections end in order.
func (h *host) endProxy(t *testing.T, p *program.Process) {
	t.Helper()
	if err := errors.Join(p.Cmd.Signal(syscall.SIGTERM), p.Wait()); err != nil {
		t.Errorf("the proxy: %v\n%v", err, p)
	}
}

// testIperf3 has one end of iperf3 use rsockets, and the other TCP. Our proxy forwards between them.
func (h *host) testIperf3(t *testing.T) {
	// The buffers of TCP are as short as those of rsockets.
	for name, sizes := range map[string]string{"rmem": "4096 131072 131072", "wmem": "4096 16384 131072"} {
		h.output(t, "sh", "-c", fmt.Sprintf("echo %s >/proc/sys/net/ipv4/tcp_%s", sizes, name))
	}
	for _, p := range pairs[:3] {
		t.Run(p.String(), func(t *testing.T) {
			skipAlike(t, p, false)
			untilNoCrash(t, func() error { return h.runIperf3(t, p, "") })
		})
	}
	for _, p := range goPairs[:2] { // the server sends
		t.Run("reverse/"+p.String(), func(t *testing.T) {
			h.skipRepeat(t, false)
			untilNoCrash(t, func() error { return h.runIperf3(t, p, "-R") })
		})
	}
}

// runIperf3 runs iperf3. On the side of Go it uses TCP, by way of our proxy.
func (h *host) runIperf3(t *testing.T, p pair, direction string) error {
	t.Helper()
	port, tcpPort := h.port(), h.port()
	s, end := h.startIperf3Server(t, p.server, port, tcpPort)
	defer end()
	client, clientPort := onRDMA("iperf3"), port
	if p.client == goSide {
		client, clientPort = onTCP("iperf3"), tcpPort
		f := h.proxy("tcp:"+address+":"+tcpPort, "rsocket:"+address+":"+port)
		defer h.endProxy(t, h.start(t, f.path, f.args...))
		h.awaitTCP(t, tcpPort)
	}
	args := append(client.args, "-c", address, "-p", clientPort, "-n", strconv.Itoa(iperf3Bytes), "-J")
	if direction != "" {
		args = append(args, direction)
	}
	c := h.start(t, client.path, args...)
	serverErr, clientErr := program.Finish(s, c)
	if serverErr != nil || clientErr != nil {
		err := failure(errors.New("iperf3 has failed"), s, c)
		if p.server == cSide && isStuck(s) || p.client == cSide && isStuck(c) {
			return crash{err}
		}
		return err
	}
	return checkIperf3(c, direction != "")
}

// inFutex matches a program whose first thread waits in futex(2).
var inFutex = regexp.MustCompile(`Its threads:\nthread \d+ \(.*\): 202 `)

// isStuck reports whether an iperf3 with librspreload waits for ever. At the end it cancels its threads, and one that
// is canceled in a call of librspreload leaves the socket locked.
func isStuck(p *program.Process) bool { return inFutex.MatchString(p.String()) }

// startIperf3Server starts a server for one client, which connects to an rsocket at port. The caller calls end.
func (h *host) startIperf3Server(t *testing.T, s side, port, tcpPort string) (p *program.Process, end func()) {
	t.Helper()
	if s == cSide {
		return h.listening(t, onRDMA("iperf3", "-s", "-1", "-B", address, "-p", port), port), func() {}
	}
	e := onTCP("iperf3", "-s", "-1", "-B", address, "-p", tcpPort)
	p = h.start(t, e.path, e.args...)
	h.awaitTCP(t, tcpPort)
	f := h.listening(t, h.proxy("rsocket:"+address+":"+port, "tcp:"+address+":"+tcpPort), port)
	return p, func() { h.endProxy(t, f) }
}

// onTCP returns the command of a program of the same part of the bed, without librspreload.
func onTCP(name string, args ...string) end {
	return end{path: preloadRun, args: append([]string{name}, args...)}
}

// awaitTCP waits until a program listens at a port of TCP.
func (h *host) awaitTCP(t *testing.T, port string) {
	t.Helper()
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Listening(t, h.guest, n).Wait(); err != nil {
		t.Fatal(err)
	}
}

// iperf3Bytes is how much iperf3 sends.
const iperf3Bytes = 2 << 20

// checkIperf3 checks how much each end reports to have sent or received. A server that receives is told by another
// connection that the client has written everything, and then discards what it has not read yet, on TCP as well. Less
// than half of it can be on the way.
func checkIperf3(c *program.Process, reverse bool) error {
	var report struct {
		End struct {
			Sent     struct{ Bytes int } `json:"sum_sent"`
			Received struct{ Bytes int } `json:"sum_received"`
		}
	}
	if err := json.Unmarshal([]byte(c.Stdout.String()), &report); err != nil {
		return failure(err, c)
	}
	sent, received := report.End.Sent.Bytes, report.End.Received.Bytes
	least := sent
	if !reverse {
		least = sent / 2
	}
	if sent < iperf3Bytes || received < least || received > sent {
		return failure(fmt.Errorf("%d bytes were sent, %d received", sent, received), c)
	}
	return nil
}

// testRedis runs clients of Redis on rsockets: the peer and redis-cli. One of the servers uses TCP, behind our proxy.
// redis-benchmark with several connections often does not end with librspreload of rdma-core 65, whatever the server:
// its threads wait for each other.
func (h *host) testRedis(t *testing.T) {
	redis := func(port string) []string {
		return []string{"--bind", address, "--port", port, "--save", "", "--dir", "/tmp", "--protected-mode", "no"}
	}
	for name, start := range map[string]func(t *testing.T, port string) *program.Process{
		"go-server": func(t *testing.T, port string) *program.Process {
			return h.listening(t, h.peer("redis-server", address+":"+port), port)
		},
		"c-server": func(t *testing.T, port string) *program.Process {
			return h.listening(t, onRDMA("redis-server", redis(port)...), port)
		},
		"tcp-server": func(t *testing.T, port string) *program.Process {
			tcpPort := h.port()
			server := onTCP("redis-server", redis(tcpPort)...)
			h.start(t, server.path, server.args...)
			h.awaitTCP(t, tcpPort)
			return h.listening(t, h.proxy("rsocket:"+address+":"+port, "tcp:"+address+":"+tcpPort), port)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.skipRepeat(t, name != "tcp-server")
			port := h.port()
			p := start(t, port)
			h.runRedisClients(t, port)
			if !p.Running() {
				t.Errorf("the server has ended:\n%v", p)
			}
			if name == "tcp-server" {
				h.endProxy(t, p)
			} else {
				p.Kill()
			}
		})
	}
}

func (h *host) runRedisClients(t *testing.T, port string) {
	client := h.peer("redis-client", address+":"+port)
	t.Run("go-client", func(t *testing.T) { h.output(t, client.path, client.args...) })
	t.Run("c-client", func(t *testing.T) {
		const commands, want = `ping\nset key some-value\nget key\nget absent\n`, "PONG\nOK\nsome-value\n\n"
		script := fmt.Sprintf("printf '%s' | %s redis-cli -h %s -p %s", commands, preloadRDMA, address, port)
		if got := h.output(t, "sh", "-c", script); got != want {
			t.Errorf("redis-cli prints %q for %s, want %q", got, commands, want)
		}
	})
}
