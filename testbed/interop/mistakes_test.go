//go:build vm

package interop

import (
	"strings"
	"syscall"
	"testing"

	"github.com/goverbs/goverbs/testbed/vm/program"
)

// testMistakes checks that mistakes are detected and reported with the fix. Without
// it, the success of the other tests would mean nothing.
func (h *host) testMistakes(t *testing.T) {
	t.Run("c-client-unchecked", h.cClientUnchecked)
	t.Run("go-client-unchecked", h.goClientUnchecked)
	t.Run("size", h.differentSizes)
	t.Run("mtu", h.differentMTUs)
	t.Run("no-gid-of-c", h.noGIDOfC)
	t.Run("interrupt", h.interruptedServer)
}

// A Go server with -c detects the messages of a C client without -c.
func (h *host) cClientUnchecked(t *testing.T) {
	s, c := h.beginPingpong(t, rcPingpong, goSide, []string{"-c"}, cSide, nil)
	err := s.Wait()
	if err == nil || !strings.Contains(s.Stderr.String(), "message 0: byte 0 is 0x7b, not 0x00") {
		t.Errorf("%v: %v", s, err)
	}
	h.interrupt(t, c) // it would wait forever
}

// A C server prints the message that the other tests check for.
func (h *host) goClientUnchecked(t *testing.T) {
	s, c := h.beginPingpong(t, rcPingpong, cSide, []string{"-c", "-n", "100"}, goSide, []string{"-n", "100"})
	if err := c.Wait(); err != nil {
		t.Errorf("%v: %v", c, err)
	}
	if err := s.Wait(); err != nil || !strings.Contains(s.Stdout.String(), "invalid data in page 0") {
		t.Errorf("%v: %v", s, err)
	}
}

// The ends have different message sizes.
func (h *host) differentSizes(t *testing.T) {
	s, c := h.beginPingpong(t, rcPingpong, goSide, []string{"-s", "128"}, goSide, []string{"-s", "64"})
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "message 0 has 64 bytes, not 128") {
		t.Errorf("%v: %v", s, err)
	}
	h.interrupt(t, c) // it waits for a reply, unless the acknowledgement was lost
	if said := c.Stderr.String(); !strings.Contains(said, "interrupted") &&
		!strings.Contains(said, "retry count exceeded") {
		t.Errorf("the signal did not end the client:\n%v", c)
	}
}

// The ends have different path MTUs. The rxe of Linux 6.1 accepts packets of any
// length; later versions reject packets that exceed the MTU.
func (h *host) differentMTUs(t *testing.T) {
	s, c := h.beginPingpong(t, rcPingpong, goSide, []string{"-m", "512"}, goSide, nil)
	serverErr, clientErr := s.Wait(), c.Wait()
	if h.guest.Kernel() == "6.1" {
		if serverErr != nil || clientErr != nil {
			t.Errorf("%v: %v\n%v: %v", s, serverErr, c, clientErr)
		}
		return
	}
	if serverErr == nil || !strings.Contains(s.Stderr.String(), "the same -m") {
		t.Errorf("%v: %v", s, serverErr)
	}
	if clientErr == nil {
		t.Errorf("the client succeeded:\n%v", c)
	}
}

// A C client without -g sends no GID.
func (h *host) noGIDOfC(t *testing.T) {
	port := h.port()
	s := h.start(t, h.path(goSide, rcPingpong), "-p", port)
	if !s.Stderr.Await("listening on") {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	c := h.start(t, rcPingpong, "-p", port, address)
	if err := s.Wait(); err == nil || !strings.Contains(s.Stderr.String(), "start the C program with -g") {
		t.Errorf("%v: %v", s, err)
	}
	if err := c.Wait(); err == nil {
		t.Errorf("the client succeeded:\n%v", c)
	}
}

// SIGINT ends a server that waits for its client.
func (h *host) interruptedServer(t *testing.T) {
	s := h.start(t, h.path(goSide, rcPingpong), "-p", h.port())
	if !s.Stderr.Await("listening on") {
		t.Fatalf("the server does not listen:\n%v", s)
	}
	h.interrupt(t, s)
	if !strings.Contains(s.Stderr.String(), "interrupted") {
		t.Errorf("the signal did not end the server:\n%v", s)
	}
}

// interrupt ends a program that does not end by itself.
func (h *host) interrupt(t *testing.T, p *program.Process) {
	t.Helper()
	if err := p.Cmd.Signal(syscall.SIGINT); err != nil {
		t.Error(err)
	}
	if err := p.Wait(); err == nil {
		t.Errorf("the program succeeded:\n%v", p)
	}
}
