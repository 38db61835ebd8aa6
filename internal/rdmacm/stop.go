package rdmacm

import (
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A Stop ends a CONNECT that waits in the kernel, which connects by TCP during the command on some devices of iWARP.
// It belongs to one id, whose caller issues one CONNECT at a time. The zero value is ready to use.
//
// End invalidates the command in memory and sends SIGURG to its thread. The signal ends the kernel's wait and, as Go
// installs every handler with SA_RESTART, the kernel then reads the command again and refuses it. A command that the
// kernel has not read yet is refused too, so that no order of the two is a race. SIGURG is the signal with which Go
// preempts goroutines: programs must expect any number of them.
type Stop struct {
	mu    sync.Mutex
	ended int      // calls of End that Resume has not undone
	c     *command // in progress, or nil
	word  uint64   // the header of c
	tid   int      // the thread that issues c
}

// invalid is a header without a valid number.
const invalid = math.MaxUint64

// End makes the CONNECT in progress return ECANCELED, unless the kernel has completed it, and every later one until
// Resume is called as often as End. End does not wait.
func (s *Stop) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended++
	if s.c != nil {
		atomic.StoreUint64(&s.c.frame[0], invalid)
		_ = unix.Tgkill(unix.Getpid(), s.tid, unix.SIGURG) // the thread exists: enter has locked it
	}
}

// Resume undoes one End.
func (s *Stop) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended--
}

// Ended reports whether commands return ECANCELED.
func (s *Stop) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended > 0
}

// enter locks the thread and begins c. It reports false, and does nothing, after End.
func (s *Stop) enter(c *command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended > 0 {
		return false
	}
	runtime.LockOSThread()
	s.c, s.word, s.tid = c, c.frame[0], unix.Gettid()
	return true
}

// leave finishes what enter has begun, and returns the result of the command.
func (s *Stop) leave(errno unix.Errno) unix.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	runtime.UnlockOSThread()
	if errno != 0 && s.c.frame[0] == invalid {
		errno = unix.ECANCELED
	}
	s.c.frame[0], s.c = s.word, nil // the trace has the command as it was
	return errno
}
