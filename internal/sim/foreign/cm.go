package foreign

import (
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/internal/ioctl"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/internal/sim/rdmacmtest"
)

// maxFrame is more than the longest command of rdma_cm.
const maxFrame = 1024

const cmdListen = 7

// A cmNode is an open rdma_cm node of a program.
type cmNode struct {
	*process
	s    *Server
	file *rdmacmtest.Foreign
}

// A cmName is a descriptor of a program.
type cmName struct {
	pid int
	fd  int32
}

// cm opens the machine's connection manager.
func (s *Server) cm(p *process) (*cmNode, error) {
	m, ok := s.machine.(interface {
		OpenForeignCM() (*rdmacmtest.Foreign, error)
	})
	if !ok {
		return nil, unix.ENOENT
	}
	n := &cmNode{process: p, s: s}
	var err error
	s.run(func() { n.file, err = m.OpenForeignCM() })
	return n, err
}

func (n *cmNode) close() error {
	n.s.mu.Lock()
	for name, key := range n.s.names {
		if key == n.file.Key() {
			delete(n.s.names, name)
		}
	}
	n.s.mu.Unlock()
	n.file.Closed()
	return n.process.close()
}

func (n *cmNode) execute(r request) reply {
	switch r.op {
	case opName:
		n.s.mu.Lock()
		defer n.s.mu.Unlock()
		if len(n.s.names) < MaxNodes {
			n.s.names[cmName{n.pid, int32(r.b)}] = n.file.Key()
		}
		return reply{fd: -1}
	case opWrite:
		p := reply{errno: n.command(r.a, r.b), fd: -1}
		if n.file.Settle() {
			p.kind = 1
		}
		return p
	}
	return reply{errno: unix.ENOSYS, fd: -1}
}

// command executes the command at an address.
func (n *cmNode) command(addr, length uint64) unix.Errno {
	if length > maxFrame {
		return unix.EINVAL
	}
	frame := make([]byte, length)
	if n.read(addr, frame) != nil {
		return unix.EFAULT
	}
	if fd, ok := rdmacmtest.DescriptorOf(frame); ok {
		n.s.mu.Lock()
		key, ok := n.s.names[cmName{n.pid, int32(binary.NativeEndian.Uint32(fd))}]
		n.s.mu.Unlock()
		if !ok {
			return unix.ENOENT
		}
		binary.NativeEndian.PutUint32(fd, uint32(key))
	}
	at, size, input, ok := rdmacmtest.DataOf(frame)
	var data []byte
	var where uint64
	if ok {
		data, where = ioctl.Buffer(size), binary.NativeEndian.Uint64(frame[at:])
		if input && n.read(where, data) != nil {
			return unix.EFAULT
		}
	}
	var errno unix.Errno
	n.s.run(func() { errno = rdmacm.Relay(n.file, frame, at, data) }) // on the machine
	if errno == 0 && binary.NativeEndian.Uint32(frame) == cmdListen {
		n.s.note(func(x *Stats) { x.Listens++ })
	}
	if ok && !input && errno == 0 && n.write(where, data) != nil {
		return unix.EFAULT
	}
	return errno
}

// errnoOf returns the errno of an error.
func errnoOf(err error, other unix.Errno) (errno unix.Errno) {
	if err != nil && !errors.As(err, &errno) {
		return other
	}
	return errno
}
