package cm

import (
	"errors"
	"os"
	"sync"

	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A node is an open rdma_cm descriptor. Commands of its ids are issued on it, and
// their events are read from it.
type node struct {
	file *rdmacm.File

	rejects rejectQueue

	mu      sync.Mutex
	closed  bool
	idCount int
}

// openFile opens a descriptor. Hermetic tests replace it with a fake kernel.
var openFile = rdmacm.Open

func explainOpen(err error) error {
	e := &Error{Op: "open", Object: "rdma_cm", Detail: err.Error(), Err: err}
	switch {
	case errors.Is(err, rdmacm.ErrABI):
		e.Kind = uverbs.ErrABI
	case errors.Is(err, unix.EMFILE):
		e.Detail = nldev.NoDescriptor
	case errors.Is(err, nldev.ErrNoRDMA): // no kernel module provides a device
		e.Kind, e.Detail = uverbs.ErrNoNode, nldev.NoRDMA
	case errors.Is(err, rdmacm.ErrNoNode), errors.Is(err, os.ErrNotExist):
		e.Kind = uverbs.ErrNoNode
		e.Detail += ": load the module with `modprobe rdma_ucm`, and let udev create /dev/infiniband/rdma_cm"
	case errors.Is(err, os.ErrPermission):
		e.Kind = os.ErrPermission
		e.Detail += ": the node is world-writable by rdma-core's udev rules;" +
			" `chmod 666 /dev/infiniband/rdma_cm` does it by hand"
	}
	errors.As(err, &e.Errno)
	return e
}

// addRef counts an id that uses the node. op is the operation that needs it.
func (n *node) addRef(op string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return closed(op, "event channel")
	}
	n.idCount++
	return nil
}

func (n *node) release() {
	n.mu.Lock()
	n.idCount--
	n.mu.Unlock()
}
