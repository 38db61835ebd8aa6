package bed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

type lockKind int

const (
	lockShared lockKind = unix.LOCK_SH
	lockTry    lockKind = unix.LOCK_EX | unix.LOCK_NB
)

// flock locks an open file. With lockTry the error is unix.EWOULDBLOCK if
// another process has the lock.
func flock(f *os.File, kind lockKind) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var lockErr error
	if err := raw.Control(func(fd uintptr) {
		for {
			if lockErr = unix.Flock(int(fd), int(kind)); lockErr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	return lockErr
}

// lockCache takes the lock of the whole cache, and writes to progress if it has
// to wait. The lock is released when the file is closed or the process exits.
func lockCache(ctx context.Context, cache string, progress io.Writer) (*os.File, error) {
	name := filepath.Join(cache, "lock")
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for waiting := false; ; waiting = true {
		err := flock(f, lockTry)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
		}
		if !waiting {
			fmt.Fprintf(progress, "bed: another process is setting up the test bed; waiting for it (%s)\n", name)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("waiting for %s: %w", name, context.Cause(ctx)), f.Close())
		case <-tick.C:
		}
	}
}
