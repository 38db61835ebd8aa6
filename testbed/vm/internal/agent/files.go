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

// pollable makes this process's end of a pipe a file whose reads and writes
// end when it is closed.
func pollable(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "pipe"), nil
}

func ptsName(number int) string { return "/dev/pts/" + strconv.Itoa(number) }

// rawFiles gives descriptors in the form that ForkExec takes.
func rawFiles(fds []int) []uintptr {
	var raw []uintptr
	for _, fd := range fds {
		raw = append(raw, uintptr(fd))
	}
	return raw
}

// closeRaw closes the child's ends; one may be there several times.
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

// queue is a command's input on its way from the host: it takes everything at
// once, so that a command that does not read holds up nobody else.
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

// next gives what has come, or false at the end.
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

// drain writes the queue into the command's input. A command that does not
// want its input (EPIPE) is no error.
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
