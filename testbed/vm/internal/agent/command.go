package agent

import (
	"encoding/json"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/guestinit"
	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// holdLimit bounds how long a command's output is read after its end while its
// children keep it open.
const holdLimit = 3 * time.Second

// A command is a running command.
type command struct {
	stream uint32
	pid    int
	ended  <-chan guestinit.Ended
	stdin  *queue
	tty    *os.File               // the terminal's master, or nil
	out    map[wire.Kind]*os.File // pipes of the command's output, by kind of frame
	input  *os.File               // pipe of the command's input, or nil
}

// spawn starts a command.
func (s *server) spawn(stream uint32, r wire.StartRequest) (*command, error) {
	root := ""
	if s.config.Root && !r.Outside {
		root = wire.RootDir
	}
	path, err := lookPath(root, r.Path, r.Env)
	if err != nil {
		return nil, err
	}
	r.Path = path
	if r.Dir == "" {
		r.Dir = "/"
	}
	c := &command{stream: stream, stdin: newQueue(), out: make(map[wire.Kind]*os.File)}
	child, err := c.openFiles(r)
	if err != nil {
		return nil, errors.Join(err, closeRaw(child), c.closeFiles())
	}
	attr := &syscall.ProcAttr{Dir: r.Dir, Env: r.Env, Files: rawFiles(child), Sys: &syscall.SysProcAttr{Setsid: true}}
	if r.TTY != nil {
		attr.Sys.Setctty = true
	}
	argv := r.Args
	if len(r.Rlimits) == 0 {
		attr.Sys.Chroot = root
		if r.UID != 0 || r.GID != 0 {
			attr.Sys.Credential = &syscall.Credential{Uid: r.UID, Gid: r.GID}
		}
	} else if path, argv, err = viaHelper(root, r, attr); err != nil {
		return nil, errors.Join(err, closeRaw(child), c.closeFiles())
	}
	c.pid, c.ended, err = s.reaper.Start(path, argv, attr)
	err = errors.Join(err, closeRaw(child))
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "exec", Path: r.Path, Err: err}, c.closeFiles())
	}
	return c, nil
}

// viaHelper returns the path and arguments to run a command by the helper.
func viaHelper(root string, r wire.StartRequest, attr *syscall.ProcAttr) (string, []string, error) {
	if _, err := os.Stat(root + r.Path); err != nil {
		return "", nil, err // the helper could only report it on the command's standard error
	}
	env := r.Env
	r.Env = nil
	task, err := json.Marshal(helperTask{Root: root, StartRequest: r})
	if err != nil {
		return "", nil, err
	}
	attr.Env, attr.Dir = env, "/"
	return "/init", []string{helperName, string(task)}, nil
}

// openFiles creates the command's pipes or terminal, and returns the child's
// descriptors 0, 1 and 2.
func (c *command) openFiles(r wire.StartRequest) ([]int, error) {
	if r.TTY != nil {
		return c.openTTY(*r.TTY)
	}
	var child []int
	if r.Stdin {
		p, err := pipe()
		if err != nil {
			return child, err
		}
		child = append(child, p[0])
		if c.input, err = pollable(p[1]); err != nil {
			return child, err
		}
	} else {
		null, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return child, err
		}
		child = append(child, null)
	}
	for _, kind := range []wire.Kind{wire.Stdout, wire.Stderr} {
		p, err := pipe()
		if err != nil {
			return child, err
		}
		child = append(child, p[1])
		if c.out[kind], err = pollable(p[0]); err != nil {
			return child, err
		}
	}
	return child, nil
}

// openTTY creates a pseudo-terminal, pts(4).
func (c *command) openTTY(w wire.WindowSize) ([]int, error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	c.tty = os.NewFile(uintptr(fd), "/dev/ptmx")
	c.input, c.out[wire.Stdout] = c.tty, c.tty
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}
	if err := c.resize(w); err != nil {
		return nil, err
	}
	child, err := unix.Open(ptsName(number), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return []int{child, child, child}, nil
}

func (c *command) resize(w wire.WindowSize) error {
	if c.tty == nil {
		return nil
	}
	raw, err := c.tty.SyscallConn()
	if err != nil {
		return err
	}
	var setErr error
	err = raw.Control(func(fd uintptr) {
		setErr = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: w.Rows, Col: w.Cols})
	})
	return errors.Join(err, setErr)
}

// follow forwards input and output until the command has ended, and reports its
// status.
func (c *command) follow(s *server) {
	if c.input != nil {
		go c.stdin.drain(c.input, c.tty == nil)
	}
	var readers sync.WaitGroup
	for kind, f := range c.out {
		readers.Go(func() { c.forward(s, kind, f) })
	}
	drained := make(chan struct{})
	go func() { readers.Wait(); close(drained) }()

	e := <-c.ended
	held := false
	select {
	case <-drained:
	case <-time.After(holdLimit):
		held = true
	}
	c.stdin.end()
	closeErr := c.closeFiles()
	<-drained
	s.forget(c.stream)
	report := wire.ExitReport{
		Status: uint32(e.Status), Held: held,
		UserUsec: e.Usage.Utime.Nano() / 1000, SysUsec: e.Usage.Stime.Nano() / 1000,
	}
	if err := errors.Join(closeErr, s.send(wire.Exit, c.stream, report)); err != nil {
		guestinit.Fatal(err)
	}
}

// forward sends the command's output to the host.
func (c *command) forward(s *server, kind wire.Kind, f *os.File) {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.Read(buf)
		if n > 0 {
			if err := s.write(wire.Frame{Kind: kind, Stream: c.stream, Payload: buf[:n]}); err != nil {
				guestinit.Fatal(err)
			}
		}
		if err != nil {
			if !eof(err) {
				guestinit.Fatal(err)
			}
			return
		}
	}
}
