package agent

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/guestinit"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// A server serves one host.
type server struct {
	config wire.GuestConfig
	reaper *guestinit.Reaper

	outMu sync.Mutex
	out   io.Writer

	mu       sync.Mutex
	commands map[uint32]*command
}

func newServer(out io.Writer, config wire.GuestConfig, reaper *guestinit.Reaper) *server {
	return &server{config: config, reaper: reaper, out: out, commands: make(map[uint32]*command)}
}

// serve handles the host's frames until the host powers off the guest or
// disconnects.
func (s *server) serve(in io.Reader) error {
	for {
		f, err := wire.Read(in)
		if errors.Is(err, io.EOF) {
			return nil // the host's program has exited: power off
		}
		if err != nil {
			return err
		}
		if f.Kind == wire.PowerOff {
			return nil
		}
		if err := s.handle(f); err != nil {
			return errors.Join(err, s.write(wire.Frame{Kind: wire.Failure, Payload: []byte(err.Error())}))
		}
	}
}

// handle handles one frame. An error is a protocol error and ends serve.
func (s *server) handle(f wire.Frame) error {
	switch f.Kind {
	case wire.Ping:
		return s.write(wire.Frame{Kind: wire.Pong, Payload: f.Payload})
	case wire.Start:
		return s.start(f)
	}
	c := s.command(f.Stream)
	if c == nil {
		return nil // it has ended: ignore a late signal or input
	}
	switch f.Kind {
	case wire.Stdin:
		c.stdin.add(f.Payload)
	case wire.CloseStdin:
		c.stdin.end()
	case wire.Signal:
		var r wire.SignalRequest
		if err := f.Decode(&r); err != nil {
			return err
		}
		err := s.reaper.Signal(c.pid, syscall.Signal(r.Signal), r.Group)
		if err != nil && !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, unix.ESRCH) {
			return err
		}
	case wire.Resize:
		var w wire.WindowSize
		if err := f.Decode(&w); err != nil {
			return err
		}
		return c.resize(w)
	default:
		return fmt.Errorf("guest-agent: frame of unknown kind %d", f.Kind)
	}
	return nil
}

// start starts a command, and reports that it runs or the error.
func (s *server) start(f wire.Frame) error {
	var r wire.StartRequest
	if err := f.Decode(&r); err != nil {
		return err
	}
	c, err := s.spawn(f.Stream, r)
	if err != nil {
		report := wire.StartedReport{Error: err.Error()}
		var errno syscall.Errno
		if errors.As(err, &errno) {
			report.Errno = int(errno)
		}
		return s.send(wire.Started, f.Stream, report)
	}
	s.mu.Lock()
	s.commands[f.Stream] = c
	s.mu.Unlock()
	if err := s.send(wire.Started, f.Stream, wire.StartedReport{PID: c.pid}); err != nil {
		return err
	}
	go c.follow(s)
	return nil
}

func (s *server) command(stream uint32) *command {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.commands[stream]
}

func (s *server) forget(stream uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.commands, stream)
}

func (s *server) send(kind wire.Kind, stream uint32, v any) error {
	f, err := wire.Message(kind, stream, v)
	if err != nil {
		return err
	}
	return s.write(f)
}

// write writes one frame.
func (s *server) write(f wire.Frame) error {
	b := f.Append(nil)
	s.outMu.Lock()
	defer s.outMu.Unlock()
	_, err := s.out.Write(b)
	return err
}
