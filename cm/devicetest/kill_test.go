//go:build device

package devicetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// A child process runs this test binary. These variables are its parameters.
const (
	envStep = "GOVERBS_TEST_STEP" // where to stop
	envPeer = "GOVERBS_TEST_PEER" // the address to connect to
)

// The steps at which a victim stops, in order.
var (
	clientSteps = []string{"created", "resolved", "routed", "ready", "asking", "established", "sending", "leaving"}
	serverSteps = []string{"listening", "asked", "ready", "answered", "established", "sending", "leaving"}
)

// A victim is a child process to be killed.
type victim struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startVictim(t testing.TB, test, step string, peer netip.AddrPort) *victim {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+test+"$", "-test.v")
	cmd.Env = append(os.Environ(), envStep+"="+step, envPeer+"="+peer.String())
	out := must(cmd.StdoutPipe())(t)
	cmd.Stderr = os.Stderr
	check(t, cmd.Start())
	v := &victim{cmd, bufio.NewScanner(out)}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			v.kill(t)
		}
	})
	return v
}

// says waits for a line that begins with word, and returns the rest.
func (v *victim) says(t testing.TB, word string) string {
	t.Helper()
	var others []string
	for v.lines.Scan() {
		if rest, ok := strings.CutPrefix(v.lines.Text(), word); ok {
			return strings.TrimSpace(rest)
		}
		others = append(others, v.lines.Text())
	}
	t.Fatalf("the child does not say %q:\n%s", word, strings.Join(others, "\n"))
	return ""
}

func (v *victim) kill(t testing.TB) {
	t.Helper()
	check(t, v.cmd.Process.Kill())
	if err := v.cmd.Wait(); err == nil {
		t.Error("the victim survived")
	}
}

// stop is called by a victim at each step: at its own step it waits to be killed.
func stop(step string) {
	if os.Getenv(envStep) == step {
		fmt.Println("at " + step)
		select {}
	}
}

// TestDeviceClientKilled kills a client at each step, and checks that the listener continues and that calls on the
// connection return an error.
func TestDeviceClientKilled(t *testing.T) {
	for _, step := range clientSteps {
		t.Run(step, func(t *testing.T) {
			now := leavesNothing(t)
			clientKilled(t, step)
			now()
		})
	}
}

func clientKilled(t testing.TB, step string) {
	ctx, cancel := context.WithTimeout(limit(t), 30*time.Second)
	defer cancel()
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small(), Setup: postOne}}))(t)
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept(ctx)
		served <- receive(ctx, c, err)
	}()
	v := startVictim(t, "TestDeviceVictimClient", step, l.Addr())
	v.says(t, "at "+step)
	v.kill(t)
	switch step {
	case "created", "resolved", "routed", "ready", "asking":
		// No request was sent, or it was not confirmed, which Accept does not report.
		// Another client can connect.
		c := must(cm.Dial(ctx, l.Addr().String(), nil))(t)
		check(t, c.Close())
	}
	gone(t, <-served)
	check(t, l.Close())
}

// postOne posts a receive without memory, for a message without data.
func postOne(c *cm.Conn) error { return c.PostRecv(1, uverbs.SGE{}) }

// receive receives messages until the connection ends. It returns any earlier error.
// The peer's kernel reports the end with one message, which a busy machine can lose:
// then a send reports it.
func receive(ctx context.Context, c *cm.Conn, err error) error {
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = c.RecvComp(soon)
	if err == nil { // the expected message: there are no others
		err = cm.ErrDisconnected
	}
	select {
	case <-c.Disconnected():
	case <-soon.Done():
		if err = probe(ctx, c); err == nil {
			err = errors.New("the end of the connection is not noticed, and a send succeeds")
		}
	}
	return errors.Join(err, c.Close())
}

// probe sends a message and returns its error.
func probe(ctx context.Context, c *cm.Conn) error {
	if err := c.PostSendInline(2, uverbs.Signaled, nil); err != nil {
		return err
	}
	_, err := c.SendComp(ctx)
	return err
}

// TestDeviceVictimClient is run by TestDeviceClientKilled as a child.
func TestDeviceVictimClient(t *testing.T) {
	if os.Getenv(envStep) == "" {
		return
	}
	k := newTalk(t)
	i := k.id(t, cm.PSTCP)
	stop("created")
	check(t, i.ResolveAddr(netip.AddrPort{}, netip.MustParseAddrPort(os.Getenv(envPeer)), 0))
	k.good(t, cm.EventAddrResolved, i)
	stop("resolved")
	check(t, i.ResolveRoute(0))
	k.good(t, cm.EventRouteResolved, i)
	stop("routed")
	check(t, i.CreateQP(nil, small()))
	stop("ready")
	if rnic() { // its kernel counts no messages
		check(t, i.Connect(nil))
	} else {
		before := messages(t, "rep")
		check(t, i.Connect(nil))
		eventually(t, "the reply", func() bool { return messages(t, "rep") > before })
	}
	stop("asking") // the reply has arrived but is not confirmed
	k.good(t, cm.EventEstablished, i)
	stop("established")
	check(t, i.PostSendInline(1, uverbs.Signaled, nil))
	stop("sending")
	check(t, i.Disconnect())
	stop("leaving")
}

// TestDeviceServerKilled kills a server at each step.
func TestDeviceServerKilled(t *testing.T) {
	for _, step := range serverSteps {
		t.Run(step, func(t *testing.T) {
			now := leavesNothing(t)
			serverKilled(t, step)
			now()
		})
	}
}

func serverKilled(t testing.TB, step string) {
	ctx, cancel := context.WithTimeout(limit(t), 30*time.Second)
	defer cancel()
	v := startVictim(t, "TestDeviceVictimServer", step, netip.AddrPort{})
	to := v.says(t, "listening ")
	if step == "listening" {
		v.kill(t)
	}
	dialed := make(chan error, 1)
	go func() {
		c, err := cm.Dial(ctx, to, &cm.Options{QP: small(), Setup: postOne})
		dialed <- receive(ctx, c, err)
	}()
	if step != "listening" {
		v.says(t, "at "+step)
		v.kill(t)
	}
	gone(t, <-dialed)
	_, err := cm.Dial(ctx, to, nil)
	isError(t, err, []error{cm.ErrRejected}, "no program listens")
}

// TestDeviceVictimServer is run by TestDeviceServerKilled as a child.
func TestDeviceVictimServer(t *testing.T) {
	if os.Getenv(envStep) == "" {
		return
	}
	k := newTalk(t)
	_, at := k.listen(t, cm.PSTCP, at(deviceIP, 0))
	fmt.Println("listening " + at.String())
	i := k.good(t, cm.EventConnectRequest, nil).ID
	stop("asked")
	check(t, i.CreateQP(nil, small()))
	stop("ready")
	check(t, i.Accept(nil))
	stop("answered")
	k.good(t, cm.EventEstablished, i)
	stop("established")
	check(t, i.PostSendInline(1, uverbs.Signaled, nil))
	stop("sending")
	check(t, i.Disconnect())
	stop("leaving")
}

// TestDeviceCredentials checks that a process that changes its user or groups cannot use the files that it has opened.
func TestDeviceCredentials(t *testing.T) {
	now := leavesNothing(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestDeviceOtherCredentials$", "-test.v")
	cmd.Env = append(os.Environ(), envStep+"=credentials")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("with other credentials: %v\n%s", err, out)
	}
	now()
}
