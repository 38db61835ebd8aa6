package vm

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A NIC is a network device of a guest, one end of a Link. Its device in the
// guest is ethN in the order of Config.NICs. The guest assigns addresses.
type NIC struct {
	end *os.File
}

// Link creates a network cable: two network devices for two guests, connected
// only to each other. A NIC can be used by one guest, once.
func Link() (a, b NIC, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return NIC{}, NIC{}, fmt.Errorf("vm: link: %w", err)
	}
	return newNIC(fds[0]), newNIC(fds[1]), nil
}

// Plug creates a network cable between a guest and this program: each frame is
// preceded by its length, four bytes, big-endian (QEMU's -netdev stream).
// internal/sim/connectx/fabric implements a switch for such connections.
func Plug() (NIC, net.Conn, error) {
	guest, ours, err := Link()
	if err != nil {
		return NIC{}, nil, err
	}
	conn, err := net.FileConn(ours.end)
	if err = errors.Join(err, ours.Close()); err != nil {
		return NIC{}, nil, fmt.Errorf("vm: plug: %w", errors.Join(err, guest.Close()))
	}
	return guest, conn, nil
}

func newNIC(fd int) NIC {
	return NIC{end: os.NewFile(uintptr(fd), "link")}
}

// Close closes a NIC that is not used by a guest.
func (n NIC) Close() error {
	if err := n.end.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("vm: link: %w", err)
	}
	return nil
}

// nic adds a NIC to QEMU's command line, with the name that SetLink uses. The
// MAC is derived from the descriptor's inode: it is unique among the guests
// that run on this machine.
func (q *commandLine) nic(i int, n NIC) error {
	if n.end == nil {
		return fmt.Errorf("NICs[%d] is not an end of a Link", i)
	}
	var st unix.Stat_t
	raw, err := n.end.SyscallConn()
	if err != nil {
		return err
	}
	var statErr error
	if err := raw.Control(func(fd uintptr) { statErr = unix.Fstat(int(fd), &st) }); err != nil || statErr != nil {
		return fmt.Errorf("NICs[%d] was used by another guest: %w", i, errors.Join(err, statErr))
	}
	fd := q.inherit(n.end)
	q.add("-netdev", fmt.Sprintf("stream,id=net%d,server=off,addr.type=fd,addr.str=%d", i, fd),
		"-device", fmt.Sprintf("virtio-net-pci,id=%s,netdev=net%d,mac=52:54:%02x:%02x:%02x:%02x,romfile=",
			nicID(i), i, byte(st.Ino>>24), byte(st.Ino>>16), byte(st.Ino>>8), byte(st.Ino)))
	return nil
}

func nicID(i int) string { return fmt.Sprintf("nic%d", i) }
