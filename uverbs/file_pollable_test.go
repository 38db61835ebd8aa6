package uverbs

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestExplainRead checks that the kernel's error of a read replaces the runtime's, if epoll reports nothing but an
// error: here for the end of a full pipe that is for writing only, whose other end is closed.
func TestExplainRead(t *testing.T) {
	var fds [2]int
	check(t, unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC))
	file := os.NewFile(uintptr(fds[1]), "pipe")
	defer func() { check(t, file.Close()) }()
	for b := make([]byte, 4096); ; {
		if _, err := unix.Write(fds[1], b); err != nil {
			break
		}
	}
	check(t, unix.Close(fds[0]))
	conn := good(file.SyscallConn())(t)
	err := conn.Read(func(uintptr) bool { return false })
	if err == nil || errnoOf(err) != 0 {
		t.Fatalf("the runtime returns %v", err)
	}
	if err := explainRead(file, err); err != unix.EBADF {
		t.Errorf("explained: %v, want EBADF", err)
	}
	for _, err := range []error{os.ErrClosed, unix.EIO} {
		if got := explainRead(file, err); !errors.Is(got, err) {
			t.Errorf("%v has become %v", err, got)
		}
	}
}
