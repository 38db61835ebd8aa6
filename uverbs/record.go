package uverbs

import (
	"os"

	"golang.org/x/sys/unix"
)

// A record reads a completion channel's records, one goroutine at a time. It
// tries by a system call of which Go's scheduler is not told, for it never
// blocks: one that is told wakes a thread of Go's, which had gone to sleep when
// the wait began, and each event would cost that once more.
type record struct {
	conn interface {
		Read(func(fd uintptr) bool) error
	}
	try   func(fd uintptr) bool // made once: the wait allocates nothing
	buf   [compEventSize]byte
	n     int
	errno unix.Errno
}

func (r *record) of(f *os.File) (err error) {
	r.conn, err = f.SyscallConn()
	r.try = r.attempt
	return err
}

// attempt is false when there is nothing to read yet.
func (r *record) attempt(fd uintptr) bool {
	r.n, r.errno = 0, unix.EINTR
	for r.errno == unix.EINTR {
		r.n, r.errno = readNow(fd, r.buf[:])
	}
	return r.errno != unix.EAGAIN
}

// read parks until there is a record, or what keeps it from coming: the file's
// end or error, or its deadline.
func (r *record) read() (id uint64, ok bool, err error) {
	if err := r.conn.Read(r.try); err != nil {
		return 0, false, err
	}
	if r.errno != 0 {
		return 0, false, r.errno
	}
	id, ok = parseCompEvent(r.buf[:r.n])
	return id, ok, nil
}
