package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// A Cmd is a command in a guest. It is used like a Cmd of os/exec: set fields,
// then call Run, or Start and Wait. It cannot be reused.
type Cmd struct {
	Path string   // a name without a slash is looked up in the guest's PATH
	Args []string // Args[0] is the name
	Env  []string // added to the guest's environment
	Dir  string   // "/" if empty

	Stdin  io.Reader // /dev/null if nil
	Stdout io.Writer // dropped if nil
	Stderr io.Writer // dropped if nil; may equal Stdout

	UID, GID uint32   // run as this user, without supplementary groups; GID defaults to UID's number
	Rlimits  []Rlimit // resource limits
	Outside  bool     // run in the initramfs even if the guest has a Debian root

	// TTY runs the command on a terminal of this size. Stdout receives all
	// output.
	TTY *WindowSize

	// ProcessState is set when the command has ended.
	ProcessState *ProcessState

	ctx    context.Context
	guest  *Guest
	stream uint32
	pid    int

	started  chan wire.StartedReport
	output   outputQueue
	finished chan struct{} // closed when output is written and the exit status is known
	exit     wire.ExitReport
	exited   bool
	copyErr  error                 // of Stdout or Stderr
	inputErr atomic.Pointer[error] // of Stdin
	wait     sync.Once
	waitErr  error
}

// Rlimit is a resource limit: Resource is one of unix.RLIMIT_*.
type Rlimit = wire.Rlimit

// WindowSize is the size of a terminal in characters.
type WindowSize = wire.WindowSize

// ProcessState describes how a command ended.
type ProcessState struct {
	Status     unix.WaitStatus
	UserTime   time.Duration // by the guest's clock
	SystemTime time.Duration
}

// ExitCode is the exit status, or -1 if a signal ended the command.
func (s *ProcessState) ExitCode() int { return s.Status.ExitStatus() }

// An ExitError reports that a command did not exit with status 0.
type ExitError struct {
	*ProcessState
	Name   string
	Stderr []byte // the last part of stderr, if Output was called without Cmd.Stderr
}

// Error implements error.
func (e *ExitError) Error() string {
	text := fmt.Sprintf("%s: exit status %d", e.Name, e.ExitCode())
	if e.Status.Signaled() {
		text = fmt.Sprintf("%s: signal: %v", e.Name, e.Status.Signal())
	}
	if len(e.Stderr) > 0 {
		text += "\n" + string(bytes.TrimSpace(e.Stderr))
	}
	return text
}

// ErrHeld means that a command has exited while its children kept its output
// open. Their later output is lost.
var ErrHeld = errors.New("vm: the command's children hold its output open")

// Command returns a command in the guest.
func (g *Guest) Command(name string, arg ...string) *Cmd {
	return g.CommandContext(context.Background(), name, arg...)
}

// CommandContext returns a command that is killed, with its process group, when
// the context ends.
func (g *Guest) CommandContext(ctx context.Context, name string, arg ...string) *Cmd {
	return &Cmd{
		Path: name, Args: append([]string{name}, arg...), ctx: ctx, guest: g,
		started: make(chan wire.StartedReport, 1), finished: make(chan struct{}),
	}
}

// Start starts the command, and returns when it runs.
func (c *Cmd) Start() error {
	if c.stream != 0 {
		return fmt.Errorf("vm: %s was started before", c.Args[0])
	}
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	if c.GID == 0 {
		c.GID = c.UID // an ordinary user must not have root's group
	}
	c.output.init()
	c.guest.register(c)
	request := wire.StartRequest{
		Path: c.Path, Args: c.Args, Env: append(c.guest.config.environment(), c.Env...), Dir: c.Dir,
		Outside: c.Outside, Stdin: c.Stdin != nil, TTY: c.TTY, UID: c.UID, GID: c.GID, Rlimits: c.Rlimits,
	}
	if err := c.guest.sendMessage(wire.Start, c.stream, request); err != nil {
		c.guest.unregister(c)
		return err
	}
	select {
	case r := <-c.started:
		if r.Error != "" {
			c.guest.unregister(c)
			return &startError{text: r.Error, errno: syscall.Errno(r.Errno)}
		}
		c.pid = r.PID
	case <-c.guest.dead:
		return c.guest.Err()
	}
	go c.writeOutput()
	if c.Stdin != nil {
		go c.copyInput()
	}
	go c.watchContext()
	return nil
}

// startError is the guest's error for a command that cannot be started. It
// matches the errno, and therefore os.ErrNotExist etc.
type startError struct {
	text  string
	errno syscall.Errno
}

func (e *startError) Error() string { return "vm: " + e.text }
func (e *startError) Unwrap() error { return e.errno }

// register assigns a stream to the command.
func (g *Guest) register(c *Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stream++
	c.stream = g.stream
	g.commands[c.stream] = c
}

func (g *Guest) unregister(c *Cmd) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.commands, c.stream)
}

// receive processes a frame of the command. It never blocks: it is called by
// the goroutine that reads from the guest.
func (c *Cmd) receive(f wire.Frame) error {
	switch f.Kind {
	case wire.Started:
		var r wire.StartedReport
		if err := f.Decode(&r); err != nil {
			return err
		}
		c.started <- r
	case wire.Stdout, wire.Stderr:
		c.output.add(f)
	case wire.Exit:
		if err := f.Decode(&c.exit); err != nil {
			return err
		}
		c.guest.unregister(c)
		c.output.end()
	default:
		return fmt.Errorf("frame of unknown kind %d", f.Kind)
	}
	return nil
}

// writeOutput writes the command's output to its writers, in order.
func (c *Cmd) writeOutput() {
	defer close(c.finished)
	for {
		f, ok := c.output.next(c.guest.dead)
		if !ok {
			c.exited = c.output.complete()
			return
		}
		w := c.Stdout
		if f.Kind == wire.Stderr {
			w = c.Stderr
		}
		if w == nil || c.copyErr != nil {
			continue
		}
		_, c.copyErr = w.Write(f.Payload)
	}
}

// copyInput sends Stdin to the command. Like os/exec, it reads ahead. An error
// of Stdin kills the command, so that it does not process incomplete input.
func (c *Cmd) copyInput() {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.Stdin.Read(buf)
		if n > 0 && c.guest.send(wire.Frame{Kind: wire.Stdin, Stream: c.stream, Payload: buf[:n]}) != nil {
			return // the guest has failed: Wait returns the error
		}
		switch {
		case errors.Is(err, io.EOF):
			err = c.guest.send(wire.Frame{Kind: wire.CloseStdin, Stream: c.stream})
		case err != nil:
			cause := err
			c.inputErr.Store(&cause)
			err = c.signal(unix.SIGKILL, true)
		default:
			continue
		}
		if err != nil {
			c.guest.fail(err) // the guest has already failed
		}
		return
	}
}

// watchContext kills the command when its context ends.
func (c *Cmd) watchContext() {
	select {
	case <-c.finished:
	case <-c.ctx.Done():
		if err := c.signal(unix.SIGKILL, true); err != nil {
			c.guest.fail(err) // the guest has already failed
		}
	}
}

// Signal sends a signal to the command. After the command has ended it does
// nothing.
func (c *Cmd) Signal(sig syscall.Signal) error { return c.signal(sig, false) }

func (c *Cmd) signal(sig syscall.Signal, group bool) error {
	return c.guest.sendMessage(wire.Signal, c.stream, wire.SignalRequest{Signal: int(sig), Group: group})
}

// Resize sets the size of the command's terminal.
func (c *Cmd) Resize(size WindowSize) error {
	return c.guest.sendMessage(wire.Resize, c.stream, size)
}

// PID returns the command's process id in the guest. The command must have been
// started.
func (c *Cmd) PID() int { return c.pid }

// killLimit bounds the time until a killed command has ended.
const killLimit = 30 * time.Second

// Wait waits for the end of the command and of its output. It returns nil if
// the command exited with status 0, an *ExitError if it did not, or the reason
// if the guest failed or the context ended.
func (c *Cmd) Wait() error {
	c.wait.Do(func() { c.waitErr = c.waitOnce() })
	return c.waitErr
}

func (c *Cmd) waitOnce() error {
	if c.stream == 0 {
		return fmt.Errorf("vm: %s was not started", c.Args[0])
	}
	select {
	case <-c.finished:
	case <-c.ctx.Done():
		select {
		case <-c.finished:
		case <-time.After(killLimit):
			return fmt.Errorf("vm: %s cannot be killed: %w", c.Args[0], context.Cause(c.ctx))
		}
	}
	if !c.exited {
		return c.guest.Err()
	}
	c.ProcessState = &ProcessState{
		Status:     unix.WaitStatus(c.exit.Status),
		UserTime:   time.Duration(c.exit.UserUsec) * time.Microsecond,
		SystemTime: time.Duration(c.exit.SysUsec) * time.Microsecond,
	}
	inputErr := c.inputErr.Load()
	switch {
	case inputErr != nil:
		return fmt.Errorf("vm: input of %s: %w", c.Args[0], *inputErr)
	case c.ctx.Err() != nil && c.ProcessState.Status.Signaled():
		return fmt.Errorf("vm: %s: %w", c.Args[0], context.Cause(c.ctx))
	case c.ProcessState.Status != 0:
		return &ExitError{ProcessState: c.ProcessState, Name: c.Args[0]}
	case c.copyErr != nil:
		return fmt.Errorf("vm: output of %s: %w", c.Args[0], c.copyErr)
	case c.exit.Held:
		return fmt.Errorf("%w: %s", ErrHeld, c.Args[0])
	}
	return nil
}

// Run starts the command and waits for it.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the command and returns its standard output. If Stderr is nil, an
// ExitError contains the end of standard error.
func (c *Cmd) Output() ([]byte, error) {
	var out, errOut bytes.Buffer
	c.Stdout = &out
	keep := c.Stderr == nil
	if keep {
		c.Stderr = &errOut
	}
	err := c.Run()
	var exit *ExitError
	if keep && errors.As(err, &exit) {
		exit.Stderr = errOut.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput runs the command and returns its output and standard error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}
