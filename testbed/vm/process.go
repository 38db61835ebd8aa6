package vm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// A process is a running QEMU. It never outlives this process: the kernel kills
// it when the thread that started it ends, and that thread is reserved for it.
type process struct {
	cmd    *exec.Cmd
	stderr lockedBuffer
	done   chan struct{}
	err    error // of Wait; valid once done is closed
}

// startProcess starts a program with the given files as descriptors 3 and up.
func startProcess(argv, env []string, files []*os.File) (*process, error) {
	p := &process{cmd: exec.Command(argv[0], argv[1:]...), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.ExtraFiles = files
	p.cmd.Stderr = &p.stderr
	// A separate process group: Ctrl-C is handled by this process, which ends
	// QEMU.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		if errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("starting QEMU (on a file system mounted noexec? then set %s to another): %w", bed.EnvCache,
				err)
		}
		return nil, fmt.Errorf("starting QEMU: %w", err)
	}
	return p, nil
}

// kill ends the process and waits for it.
func (p *process) kill() error {
	err := p.cmd.Process.Kill()
	<-p.done
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	return err
}

// ending describes how a process that exited unexpectedly has ended.
func (p *process) ending() string {
	how := "QEMU ended"
	if p.err != nil {
		how = fmt.Sprintf("QEMU ended: %v", p.err)
	}
	if said := strings.TrimSpace(p.stderr.String()); said != "" {
		how += "\n" + said
	}
	return how
}

// A lockedBuffer is a buffer that is written and read concurrently.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// socketPair returns a connected pair of sockets: ours, and QEMU's.
func socketPair(kind int, name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket for the guest's %s: %w", name, err)
	}
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), name), nil
}
