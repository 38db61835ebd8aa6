package vm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile takes a lock that is also released when the process exits.
func lockFile(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, unix.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
	}
	return func() { f.Close() }, nil // nothing was written: closing cannot lose data
}

func flock(f *os.File, how int) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := raw.Control(func(fd uintptr) {
		for {
			if lockErr = unix.Flock(int(fd), how); lockErr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	return lockErr
}

// A runDir is a guest's private directory on the host. It is removed with the
// guest or, if this process is killed, by the next process that starts a guest.
type runDir struct {
	path string
	lock *os.File
}

// newRunDir creates a run directory below top, and removes those of exited
// processes. The lock of a directory is taken before the directory is created.
func newRunDir(top string) (*runDir, error) {
	if err := os.MkdirAll(top, 0o700); err != nil {
		return nil, err
	}
	if err := sweepRunDirs(top); err != nil {
		return nil, err
	}
	for {
		lock, err := os.CreateTemp(top, "guest-*.lock")
		if err != nil {
			return nil, err
		}
		if err := flock(lock, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			lock.Close()
			continue // a concurrent sweep removes the file
		}
		if _, err := os.Lstat(lock.Name()); err != nil {
			lock.Close()
			continue // ... and has removed it
		}
		d := &runDir{path: strings.TrimSuffix(lock.Name(), ".lock"), lock: lock}
		if err := os.Mkdir(d.path, 0o700); err != nil {
			return nil, errors.Join(err, d.remove())
		}
		return d, nil
	}
}

func (d *runDir) remove() error {
	return errors.Join(os.RemoveAll(d.path), os.Remove(d.lock.Name()), d.lock.Close())
}

// sweepRunDirs removes the directories whose owner has exited.
func sweepRunDirs(top string) error {
	locks, err := filepath.Glob(filepath.Join(top, "guest-*.lock"))
	if err != nil {
		return err
	}
	for _, name := range locks {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if errors.Is(err, os.ErrNotExist) {
			continue // its owner has just removed it
		}
		if err != nil {
			return err
		}
		if flock(f, unix.LOCK_EX|unix.LOCK_NB) == nil {
			err = errors.Join(os.RemoveAll(strings.TrimSuffix(name, ".lock")), os.Remove(name))
			if errors.Is(err, os.ErrNotExist) {
				err = nil // two concurrent sweeps
			}
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
