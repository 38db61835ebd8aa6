package uverbs

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inSandbox runs the test in another process, and reports whether this is that process.
func inSandbox(t *testing.T) bool {
	t.Helper()
	if os.Getenv(sandboxed) != "" {
		return true
	}
	again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.timeout=1m")
	again.Env = append(os.Environ(), sandboxed+"=1")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("in the sandbox: %v\n%s", err, out)
	}
	return false
}

// TestNoEpollEvents checks that a Context without a file of events that epoll accepts works, but for events.
func TestNoEpollEvents(t *testing.T) {
	if !inSandbox(t) {
		return
	}
	r := bareRig()
	forbid(t, unix.SYS_EPOLL_CTL, unix.EPERM)
	c := good(r.open(t))(t)
	if _, err := c.NextEvent(t.Context()); !errors.Is(err, ErrNotSupported) || !strings.Contains(err.Error(), "epoll") {
		t.Errorf("NextEvent: %v, want ErrNotSupported and the reason", err)
	}
	q := good(c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	check(t, second(q.Poll(make([]WC, 1))))
	check(t, c.Close())
	if _, err := c.NextEvent(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("NextEvent after Close: %v, want ErrClosed", err)
	}
	r.k.Close(t)
}

// TestNoEpollWatch checks that if the user has no epoll watch left, objects that need one are not
// created, the error names the limit, and the Context is unchanged.
func TestNoEpollWatch(t *testing.T) {
	if !inSandbox(t) {
		return
	}
	r := newRig(t)
	forbid(t, unix.SYS_EPOLL_CTL, unix.ENOSPC)
	other := bareRig()
	for name, err := range map[string]error{
		"CreateCQ":          second(r.c.CreateCQ(CQConfig{Entries: 1})),
		"CreateCompChannel": second(r.c.CreateCompChannel()),
		"Open":              second(other.open(t)),
	} {
		var e *Error
		if !errors.Is(err, unix.ENOSPC) || !errors.As(err, &e) ||
			!strings.Contains(err.Error(), "fs.epoll.max_user_watches") {
			t.Errorf("%s: %v, want ENOSPC and the name of the limit", name, err)
		}
	}
	q := good(r.c.CreateCQ(CQConfig{Entries: 1, NoEvents: true}))(t)
	check(t, second(q.Poll(make([]WC, 1))))
	other.k.Close(t)
}
