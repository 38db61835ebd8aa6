package rdmacm

import (
	"io"
	"os"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
)

// OpenNode opens node in a directory.
func OpenNode(dir string, node nldev.CharDev) (*File, error) { return open(dir, node) }

// OnFile uses any file that can be polled as an rdma_cm node.
func OnFile(file *os.File) (*File, error) { return newFile(file, nil) }

// Trace turns the trace on or off, and sends it to w.
func Trace(on bool, w io.Writer) (restore func()) {
	traceMu.Lock()
	defer traceMu.Unlock()
	wasOn, was := tracing.Swap(on), traceTo
	traceTo = w
	return func() {
		traceMu.Lock()
		defer traceMu.Unlock()
		tracing.Store(wasOn)
		traceTo = was
	}
}

// IssueHeader issues a command that is a header alone.
func (f *File) IssueHeader(s *Stop) error {
	c := start(uapi.RDMA_USER_CM_CMD_CONNECT, 0)
	defer c.put()
	c.stop = s
	return f.do(c)
}

// Thread returns the thread of the command in progress, or 0.
func (s *Stop) Thread() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil {
		return 0
	}
	return s.tid
}
