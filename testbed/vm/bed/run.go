package bed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stallLimit bounds the time in which a step makes no progress. apt itself
// retries a silent connection three times, after half a minute each.
const stallLimit = 3 * time.Minute

// A step is a run of an external program during set-up.
type step struct {
	dir      string
	argv     []string
	progress func(percent int, text string) // from apt's status lines; may be nil
	limit    time.Duration                  // for time without progress; stallLimit if zero
	root     string                         // the program's root directory, if it is not the machine's
}

// run runs the step and returns its output. The program is killed when ctx
// ends, when it stalls, and when this process exits.
func (s step) run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := s.limit
	if limit == 0 {
		limit = stallLimit
	}
	watch := newWatchdog(limit, func() { cancel(fmt.Errorf("no progress for %v", limit)) })
	defer watch.stop()

	statusR, statusW, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer statusR.Close()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...)
	cmd.Dir = s.dir
	cmd.Env = childEnv()
	cmd.Stdout = io.MultiWriter(&out, watch)
	cmd.Stderr = io.MultiWriter(&errOut, watch)
	cmd.ExtraFiles = []*os.File{statusW} // becomes descriptor 3: see aptStatusFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if s.root != "" {
		enterRoot(cmd, s.root)
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second

	var status sync.WaitGroup
	status.Go(func() { s.readStatus(statusR, watch) })
	err = runOnOneThread(cmd, statusW)
	status.Wait()
	if err != nil {
		return "", s.failure(ctx, err, errOut.String())
	}
	return out.String(), nil
}

// enterRoot makes a directory the root of a program. Without root rights, that needs a user namespace.
func enterRoot(cmd *exec.Cmd, root string) {
	a := cmd.SysProcAttr
	a.Chroot, cmd.Dir = root, "/"
	if os.Geteuid() != 0 {
		a.Cloneflags = syscall.CLONE_NEWUSER
		a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
}

// failure returns an error with the step, the cause, and the program's error
// output.
func (s step) failure(ctx context.Context, err error, said string) error {
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	name := strings.Join(s.argv, " ")
	if len(name) > 160 {
		name = name[:160] + "..."
	}
	if said = strings.TrimSpace(said); said != "" {
		return fmt.Errorf("%s: %w\n%s", name, err, said)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// runOnOneThread starts a program and waits for it on one operating system
// thread: the parent death signal is sent when the thread that started the
// child exits.
func runOnOneThread(cmd *exec.Cmd, closeAfterStart io.Closer) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		err = errors.Join(err, closeAfterStart.Close())
		if err == nil {
			err = cmd.Wait()
		}
		done <- err
	}()
	return <-done
}

// readStatus reads apt's status lines: "dlstatus:1:12.5000:Retrieving ...".
func (s step) readStatus(r io.Reader, watch *watchdog) {
	last := ""
	for lines := bufio.NewScanner(r); lines.Scan(); {
		if lines.Text() == last {
			continue // a repeated line is not progress
		}
		last = lines.Text()
		watch.reset()
		if percent, text, ok := parseStatus(last); ok && s.progress != nil {
			s.progress(percent, text)
		}
	}
}

// parseStatus parses one of apt's status lines.
func parseStatus(line string) (percent int, text string, ok bool) {
	f := strings.SplitN(line, ":", 4)
	if len(f) != 4 || f[0] != "dlstatus" {
		return 0, "", false
	}
	p, err := strconv.ParseFloat(f[2], 64)
	if err != nil || p < 0 || p > 100 {
		return 0, "", false
	}
	return int(p), f[3], true
}

// childEnv returns the environment of the programs: this process's, in English,
// and without a variable that would select another apt configuration.
func childEnv() []string {
	env := []string{"LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if name != "APT_CONFIG" && name != "LC_ALL" && name != "LANGUAGE" && !strings.HasPrefix(name, "PYTHON") {
			env = append(env, v)
		}
	}
	return env
}

// A watchdog calls a function when for its limit nothing was written to it and
// reset was not called.
type watchdog struct {
	limit time.Duration
	timer *time.Timer
}

func newWatchdog(limit time.Duration, bark func()) *watchdog {
	return &watchdog{limit, time.AfterFunc(limit, bark)}
}

func (w *watchdog) reset()                      { w.timer.Reset(w.limit) }
func (w *watchdog) stop()                       { w.timer.Stop() }
func (w *watchdog) Write(p []byte) (int, error) { w.reset(); return len(p), nil }
