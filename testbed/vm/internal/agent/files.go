package agent

import (
	"errors"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/testbed/vm/guestinit"
)

func pipe() ([2]int, error) {
	var p [2]int
	err := unix.Pipe2(p[:], unix.O_CLOEXEC)
	return p, err
}

// pollable returns a file for this process's end of a pipe. Closing it ends its
// reads and writes.
func pollable(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "pipe"), nil
}

func ptsName(number int) string { return "/dev/pts/" + strconv.Itoa(number) }

// rawFiles converts descriptors for ForkExec.
func rawFiles(fds []int) []uintptr {
	var raw []uintptr
	for _, fd := range fds {
		raw = append(raw, uintptr(fd))
	}
	return raw
}

// closeRaw closes the child's ends, which may contain duplicates.
func closeRaw(fds []int) error {
	var err error
	for _, fd := range slices.Compact(slices.Sorted(slices.Values(fds))) {
		err = errors.Join(err, unix.Close(fd))
	}
	return err
}

func (c *command) closeFiles() error {
	var err error
	closeOne := func(f *os.File) {
		if f == nil {
			return
		}
		if e := f.Close(); !errors.Is(e, os.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	closeOne(c.input)
	for _, f := range c.out {
		closeOne(f)
	}
	closeOne(c.tty)
	return err
}

// A queue queues a command's input from the host without a bound, so that a
// command that does not read does not block others.
type queue struct {
	mu     sync.Mutex
	more   sync.Cond
	data   []byte
	closed bool
}

func newQueue() *queue {
	q := &queue{}
	q.more.L = &q.mu
	return q
}

func (q *queue) add(b []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.data = append(q.data, b...)
	q.more.Signal()
}

func (q *queue) end() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.more.Signal()
}

// next returns queued data, or false at the end.
func (q *queue) next() ([]byte, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.data) == 0 && !q.closed {
		q.more.Wait()
	}
	b := q.data
	q.data = nil
	return b, len(b) > 0
}

// drain writes the queue to the command's input. EPIPE is not an error: the
// command has closed its input.
func (q *queue) drain(f *os.File, closeAtEnd bool) {
	for {
		b, ok := q.next()
		if !ok {
			break
		}
		if _, err := f.Write(b); err != nil {
			if !errors.Is(err, unix.EPIPE) && !eof(err) {
				guestinit.Fatal(err)
			}
			break
		}
	}
	if closeAtEnd {
		if err := f.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			guestinit.Fatal(err)
		}
	}
}
