package uverbs

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestNoEpollWatch checks that if the user has no epoll watch left, objects that need one are not
// created, the error names the limit, and the Context is unchanged.
func TestNoEpollWatch(t *testing.T) {
	if os.Getenv(sandboxed) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestNoEpollWatch$", "-test.timeout=1m")
		again.Env = append(os.Environ(), sandboxed+"=1")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("without epoll: %v\n%s", err, out)
		}
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
