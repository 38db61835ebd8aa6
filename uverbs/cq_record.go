package uverbs

import (
	"encoding/binary"
	"os"

	"github.com/goverbs/goverbs/internal/monitor"
	"golang.org/x/sys/unix"
)

// compEventSize is the size of a record: struct ib_uverbs_comp_event_desc.
const compEventSize = 8

// parseCompEvent decodes a record of a completion channel.
func parseCompEvent(b []byte) (id uint64, ok bool) {
	if len(b) != compEventSize {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b), true
}

// A record reads records of a completion channel, for one goroutine at a time. It
// uses a system call that Go's scheduler is not notified of, because the call never
// blocks. With a notification, each event would also wake a thread of the runtime
// that went to sleep when the wait began: see package monitor.
type record struct {
	conn interface {
		Read(func(fd uintptr) bool) error
	}
	try   func(fd uintptr) bool // created once, so that waiting does not allocate
	buf   [compEventSize]byte
	n     int
	errno unix.Errno
	wait  monitor.Wait
}

func (r *record) init(f *os.File) (err error) {
	r.conn, err = f.SyscallConn()
	r.try = r.attempt
	return err
}

// attempt reports whether the read finished. It returns false if there is no record
// yet.
func (r *record) attempt(fd uintptr) bool {
	r.n, r.errno = 0, unix.EINTR
	for r.errno == unix.EINTR {
		r.n, r.errno = readNow(fd, r.buf[:])
	}
	return r.wait.Done(r.errno)
}

// read waits for a record. It returns an error if none can arrive: after the
// deadline, an error or the end of the file. It reports the end of the file as EIO,
// as the kernel does.
func (r *record) read() (id uint64, err error) {
	r.wait = monitor.Wait{}
	if err := r.conn.Read(r.try); err != nil {
		return 0, err
	}
	if r.errno != 0 {
		return 0, r.errno
	}
	id, ok := parseCompEvent(r.buf[:r.n])
	if !ok {
		return 0, unix.EIO
	}
	return id, nil
}
