package rdmacm

import (
	"io"
	"os"

	"github.com/goverbs/goverbs/internal/nldev"
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
