package nldev

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// transport sends datagrams to the kernel and receives datagrams from it.
type transport interface {
	send(b []byte) error
	// receive returns one datagram, which is valid until the next call.
	receive() ([]byte, error)
	close()
}

const (
	// replyTimeout limits the wait for one datagram. The kernel replies within sendmsg, so only a
	// fault can make the wait this long.
	replyTimeout = 5 * time.Second
	// bufferSize is twice the size of the largest datagram of a dump.
	bufferSize = 1 << 16
)

// socket is a netlink socket.
type socket struct {
	fd      int
	buf     []byte
	timeout time.Duration
}

// dialKernel opens a NETLINK_RDMA socket.
func dialKernel() (transport, error) {
	return dial(unix.NETLINK_RDMA, bufferSize, replyTimeout)
}

// dial opens a netlink socket with a receive timeout. Tests use a protocol that every kernel has.
func dial(protocol, size int, timeout time.Duration) (transport, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	s := &socket{fd: fd, buf: make([]byte, size), timeout: timeout}
	tv := unix.NsecToTimeval(timeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		s.close()
		return nil, os.NewSyscallError("setsockopt SO_RCVTIMEO", err)
	}
	// Both options only improve error messages. Kernels before 4.12 lack them.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		s.close()
		return nil, os.NewSyscallError("bind", err)
	}
	return s, nil
}

func (s *socket) send(b []byte) error {
	for {
		err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return os.NewSyscallError("sendto", err)
		}
	}
}

func (s *socket) receive() ([]byte, error) {
	for {
		n, _, flags, from, err := unix.Recvmsg(s.fd, s.buf, nil, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return nil, fmt.Errorf("no reply within %v: %w", s.timeout, unix.ETIMEDOUT)
		case err != nil:
			return nil, os.NewSyscallError("recvmsg", err)
		case flags&unix.MSG_TRUNC != 0:
			return nil, malformed("a datagram of more than %d bytes", len(s.buf))
		}
		// Another process may send to this socket too. The kernel is port 0.
		if nl, ok := from.(*unix.SockaddrNetlink); ok && nl.Pid == 0 {
			return s.buf[:n], nil
		}
	}
}

func (s *socket) close() { _ = unix.Close(s.fd) }
