package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/internal/wire"
)

// helperName is the name under which the agent starts itself, outside of any
// root, to set resource limits, which ForkExec cannot set.
const helperName = "goverbs-exec"

// helperTask is the argument of the helper.
type helperTask struct {
	Root string
	wire.StartRequest
}

// helper sets limits, root and user, and executes the command. The limits are
// set first, while the process may still raise them.
func helper(arg string) error {
	var t helperTask
	if err := json.Unmarshal([]byte(arg), &t); err != nil {
		return err
	}
	for _, l := range t.Rlimits {
		limit := syscall.Rlimit{Cur: l.Soft, Max: l.Hard}
		if err := syscall.Setrlimit(l.Resource, &limit); err != nil {
			return fmt.Errorf("setrlimit %d: %w", l.Resource, err)
		}
	}
	if t.Root != "" {
		if err := unix.Chroot(t.Root); err != nil {
			return err
		}
	}
	if t.UID != 0 || t.GID != 0 {
		if err := dropTo(int(t.UID), int(t.GID)); err != nil {
			return err
		}
	}
	if err := os.Chdir(t.Dir); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", t.Path, unix.Exec(t.Path, t.Args, os.Environ()))
}

func dropTo(uid, gid int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setgid(gid); err != nil {
		return err
	}
	return syscall.Setuid(uid)
}
