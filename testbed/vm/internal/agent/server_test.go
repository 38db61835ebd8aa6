package agent

import (
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/guestinit"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// A host is the other end of a server in this process, whose commands run on
// this machine.
type host struct {
	t    *testing.T
	conn *os.File
	done chan error
}

// reaper is the only reaper of this process.
var reaper = sync.OnceValue(guestinit.NewReaper)

func socketPair(t *testing.T) (a, b *os.File) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	return os.NewFile(uintptr(fds[0]), "host"), os.NewFile(uintptr(fds[1]), "guest")
}

func newHost(t *testing.T) *host {
	ours, theirs := socketPair(t)
	h := &host{t: t, conn: ours, done: make(chan error, 1)}
	s := newServer(theirs, wire.GuestConfig{}, reaper())
	go func() { h.done <- s.serve(theirs) }()
	t.Cleanup(func() {
		if err := ours.Close(); err != nil {
			t.Error(err)
		}
		if err := errors.Join(<-h.done, theirs.Close()); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return h
}

func (h *host) send(kind wire.Kind, stream uint32, v any) {
	h.t.Helper()
	f, err := wire.Message(kind, stream, v)
	if err != nil {
		h.t.Fatal(err)
	}
	h.raw(f)
}

func (h *host) raw(f wire.Frame) {
	h.t.Helper()
	if _, err := h.conn.Write(f.Append(nil)); err != nil {
		h.t.Fatal(err)
	}
}

// A result has everything that the server has reported about a command.
type result struct {
	started        wire.StartedReport
	stdout, stderr string
	exit           wire.ExitReport
}

// await reads frames until the command has ended, and calls when with the
// output so far.
func (h *host) await(stream uint32, when func(r result)) result {
	h.t.Helper()
	var r result
	for {
		f, err := wire.Read(h.conn)
		if err != nil {
			h.t.Fatal(err)
		}
		if f.Stream != stream {
			h.t.Fatalf("a frame of stream %d", f.Stream)
		}
		switch f.Kind {
		case wire.Started:
			err = f.Decode(&r.started)
			if r.started.Error != "" {
				return r
			}
		case wire.Stdout:
			r.stdout += string(f.Payload)
		case wire.Stderr:
			r.stderr += string(f.Payload)
		case wire.Exit:
			if err := f.Decode(&r.exit); err != nil {
				h.t.Fatal(err)
			}
			return r
		}
		if err != nil {
			h.t.Fatal(err)
		}
		if when != nil {
			when(r)
		}
	}
}

func sh(script string) wire.StartRequest {
	return wire.StartRequest{Path: "sh", Args: []string{"sh", "-c", script},
		Env: []string{"PATH=/usr/bin:/bin", "COLOUR=blue"}}
}

func TestServerRuns(t *testing.T) {
	h := newHost(t)
	request := sh("echo $COLOUR; pwd; echo wrong >&2; exit 3")
	request.Dir = "/usr"
	h.send(wire.Start, 1, request)
	r := h.await(1, nil)
	if r.stdout != "blue\n/usr\n" || r.stderr != "wrong\n" || unix.WaitStatus(r.exit.Status).ExitStatus() != 3 ||
		r.exit.Held {
		t.Errorf("%+v", r)
	}
}

func TestServerInput(t *testing.T) {
	h := newHost(t)
	request := sh("cat; echo end")
	request.Stdin = true
	h.send(wire.Start, 2, request)
	for range 3 {
		h.raw(wire.Frame{Kind: wire.Stdin, Stream: 2, Payload: []byte("abc")})
	}
	h.raw(wire.Frame{Kind: wire.CloseStdin, Stream: 2})
	if r := h.await(2, nil); r.stdout != "abcabcabcend\n" {
		t.Errorf("%+v", r)
	}
	h.send(wire.Start, 3, sh("cat; echo end"))
	if r := h.await(3, nil); r.stdout != "end\n" {
		t.Errorf("without input: %+v", r)
	}
}

func TestServerSignal(t *testing.T) {
	for _, group := range []bool{false, true} {
		h := newHost(t)
		h.send(wire.Start, 1, sh("echo up; exec sleep 1000"))
		sent := false
		r := h.await(1, func(r result) {
			if r.stdout == "up\n" && !sent {
				sent = true
				h.send(wire.Signal, 1, wire.SignalRequest{Signal: int(unix.SIGTERM), Group: group})
			}
		})
		if unix.WaitStatus(r.exit.Status).Signal() != unix.SIGTERM {
			t.Errorf("%+v", r)
		}
		h.send(wire.Signal, 1, wire.SignalRequest{Signal: int(unix.SIGTERM)}) // after the end: ignored
	}
}

func TestServerCannotStart(t *testing.T) {
	h := newHost(t)
	for i, path := range []string{"no-such-program", "/no/such/program", "/etc/passwd"} {
		h.send(wire.Start, uint32(i), wire.StartRequest{Path: path, Args: []string{path}})
		want := unix.ENOENT
		if path == "/etc/passwd" {
			want = unix.EACCES
		}
		if r := h.await(uint32(i), nil); unix.Errno(r.started.Errno) != want || !strings.Contains(r.started.Error, path) {
			t.Errorf("%s: %+v", path, r.started)
		}
	}
}

func TestServerTerminal(t *testing.T) {
	h := newHost(t)
	request := sh("stty size; read x; echo got $x")
	request.Stdin, request.TTY = true, &wire.WindowSize{Rows: 11, Cols: 22}
	h.send(wire.Start, 1, request)
	h.raw(wire.Frame{Kind: wire.Stdin, Stream: 1, Payload: []byte("word\n")})
	r := h.await(1, nil)
	for _, want := range []string{"11 22", "got word"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
}

func TestServerEnds(t *testing.T) {
	for name, f := range map[string]wire.Frame{"power-off": {Kind: wire.PowerOff}, "nonsense": {Kind: 99, Stream: 1}} {
		ours, theirs := socketPair(t)
		s := newServer(io.Discard, wire.GuestConfig{}, reaper())
		s.commands[1] = &command{}
		done := make(chan error, 1)
		go func() { done <- s.serve(theirs) }()
		if _, err := ours.Write(f.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; (err == nil) != (name == "power-off") {
			t.Errorf("%s: %v", name, err)
		}
		if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestKmsgText(t *testing.T) {
	for record, want := range map[string]string{
		"6,123,4567890,-;Linux version 6.12\n SUBSYSTEM=x\n": "[    4.567890] Linux version 6.12",
		"4,1,0,-;early\n": "[    0.000000] early",
		"nonsense":        "[    0.000000] ",
	} {
		if got := kmsgText(record); got != want {
			t.Errorf("%q became %q, want %q", record, got, want)
		}
	}
}
