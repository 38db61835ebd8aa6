package uverbs

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pollable returns an os.File for a descriptor that the kernel returned. op and object are for
// errors. The descriptor must be non-blocking before the runtime sees it, or each read would
// occupy a thread.
func pollable(fd int, op, object string) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(os.NewSyscallError("fcntl", err), unix.Close(fd))
	}
	file := os.NewFile(uintptr(fd), op)
	// The runtime does not report that it cannot watch a descriptor, but setting a deadline of
	// such a file fails.
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return nil, errors.Join(explainUnpollable(fd, op, object), file.Close())
	}
	return file, nil
}

// explainUnpollable finds out why the runtime cannot watch a descriptor: it asks the kernel
// again with a separate epoll instance.
func explainUnpollable(fd int, op, object string) error {
	e := &Error{Op: op, Object: object, Detail: "the runtime cannot wait for its events by epoll"}
	poller, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		e.Errno = errnoOf(err)
		return e
	}
	err = unix.EpollCtl(poller, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN})
	e.Errno = errnoOf(err)
	if errors.Is(err, unix.ENOSPC) {
		e.Detail = "the user has no epoll watch left: the limit fs.epoll.max_user_watches is reached: " +
			"raise it by sysctl(8), or close descriptors that are being waited for"
	}
	// The epoll instance is empty and has no other user.
	_ = unix.Close(poller)
	return e
}

// explainRead returns the kernel's reason why a file of events cannot be read any more, after a read has failed with
// err. If epoll reports nothing but an error, as Linux 7.2 does for a removed device, the runtime returns its own error
// without reading. A read of no bytes takes no event.
func explainRead(file *os.File, err error) error {
	if errors.Is(err, os.ErrClosed) || errnoOf(err) != 0 {
		return err
	}
	conn, closed := file.SyscallConn()
	if closed != nil {
		return err
	}
	var errno unix.Errno
	closed = conn.Control(func(fd uintptr) { _, errno = readNow(fd, make([]byte, 1)[:0]) })
	if closed != nil || errno == 0 || errno == unix.EAGAIN {
		return err
	}
	return errno
}
