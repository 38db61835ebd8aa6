package rdmacm

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/internal/nldev"
	"github.com/goverbs/goverbs/internal/uapi"
	"golang.org/x/sys/unix"
)

var (
	// ErrNoNode means that there is no rdma_cm node, or that the file of that name is
	// something else.
	ErrNoNode = errors.New("no rdma_cm node")
	// ErrABI means that this package does not support the kernel's version of the ABI.
	ErrABI = errors.New("unknown version of the rdma_cm ABI")
	// ErrCredentials means that the kernel refuses all commands because the credentials
	// of the calling thread are not those that the node was opened with. It comes with
	// EACCES. The kernel compares credentials by identity. If they change while a Go
	// program runs, each of its threads gets a separate copy, so opening the node again
	// does not help.
	ErrCredentials = errors.New("the program has changed its user, groups or capabilities while it ran")
)

var errCredentials = fmt.Errorf("%w: %w", ErrCredentials, unix.EACCES)

// The supported versions of the ABI.
const (
	minABI = 3
	maxABI = uapi.RDMA_USER_CM_ABI_VERSION
)

// A File is an open rdma_cm node: a set of ids and one queue of their events. Its
// methods may be called concurrently.
type File struct {
	file   *os.File
	conn   syscall.RawConn
	kernel Kernel // if nil, commands are written to the descriptor
	ticket *leak.Ticket
	closed atomic.Bool

	mu       sync.Mutex
	deadline time.Time // set by the caller
	kicked   bool      // the poller has a past deadline instead
	kicks    uint64
}

// A Machine is a machine in memory that has a connection manager.
type Machine interface {
	machine.Machine
	OpenCM() (*File, error)
}

// Open opens the node. Looking it up makes the kernel load rdma_ucm.
//
// It returns ErrNoNode if there is no node, ErrABI, EMFILE or ENFILE if no descriptor is left,
// or the *os.PathError of opening it.
func Open() (*File, error) {
	switch m := machine.Current().(type) {
	case nil:
	case Machine:
		return m.OpenCM()
	default:
		return nil, ErrNoNode
	}
	node, err := nldev.ClientCharDev("rdma_cm")
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE): // says nothing about the node
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	return open("/dev/infiniband/", node)
}

func open(dir string, node nldev.CharDev) (*File, error) {
	if node.ABI < minABI || node.ABI > maxABI {
		return nil, fmt.Errorf("%w: the kernel has version %d, this library knows %d to %d", ErrABI, node.ABI, minABI, maxABI)
	}
	path := dir + node.Name
	file, err := os.OpenFile(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: %w", ErrNoNode, err)
	}
	if err != nil {
		return nil, err
	}
	if err := check(file, node); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	f, err := newFile(file, nil)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// check returns an error if the file is not the kernel's node.
func check(file *os.File, node nldev.CharDev) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(node.Major, node.Minor) {
		return fmt.Errorf("%w: %s is not character device %d:%d", ErrNoNode, file.Name(), node.Major, node.Minor)
	}
	return nil
}

func newFile(file *os.File, k Kernel) (*File, error) {
	// A file that cannot be polled would block a thread while it waits.
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("%s cannot be polled: %w", file.Name(), err)
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &File{file: file, conn: conn, kernel: k, ticket: leak.Track("descriptor of", "rdma_cm")}, nil
}

// Close makes every NextEvent return os.ErrClosed, waits for commands in progress and
// closes the descriptor. The kernel then destroys the ids. Close is idempotent.
func (f *File) Close() error {
	if f.closed.Swap(true) {
		return nil
	}
	err := f.file.Close()
	if f.kernel != nil {
		f.kernel.Closed()
	}
	f.ticket.Done()
	return err
}

// SetReadDeadline makes NextEvent return os.ErrDeadlineExceeded from t on: at once if t
// is in the past, never if t is zero.
func (f *File) SetReadDeadline(t time.Time) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deadline, f.kicked = t, false
	return f.gone(f.file.SetReadDeadline(t))
}

// kick makes a waiting NextEvent ask the kernel again. Events that migrate to a file do
// not wake its poller.
func (f *File) kick() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kicks++
	f.kicked = true
	_ = f.file.SetReadDeadline(time.Unix(1, 0)) // it only fails if the file is closed, and then no call waits
}

// asked reports whether a kick ended a wait, and restores the caller's deadline. seen
// is the number of kicks that the waiting call has already handled.
func (f *File) asked(seen *uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.kicked && f.kicks == *seen {
		return false
	}
	*seen = f.kicks
	if f.kicked {
		f.kicked = false
		_ = f.file.SetReadDeadline(f.deadline) // as in kick
	}
	return true
}

func (f *File) seen() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.kicks
}

// gone converts the poller's error for a closed file to os.ErrClosed.
func (f *File) gone(err error) error {
	if err != nil && f.closed.Load() {
		return os.ErrClosed
	}
	return err
}
