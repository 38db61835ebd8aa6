package nldev

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrNoRDMA is the error if the kernel has no RDMA subsystem: ib_core is neither built in nor
// loaded, or a container hides it.
var ErrNoRDMA = errors.New("this kernel has no RDMA subsystem")

// GetDevice describes how to get an RDMA device on a host.
const GetDevice = "load the driver of an RDMA NIC, or create a software device of a network interface such as eth0" +
	" with `modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0` (rdma comes with iproute2; a kernel without" +
	" the module rdma_rxe, as many cloud images have, is to be replaced by the distribution's full one)"

// MoveDevice describes how to get a device in a network namespace if each device belongs to one: see
// [NetnsMode].
const MoveDevice = "each device belongs to one network namespace, since the kernel is in exclusive mode: in the" +
	" namespace that has the device, move it with `rdma dev set <device> netns <name>`, or let all namespaces share the" +
	" devices with `rdma system set netns shared`, which the kernel permits while there are no others"

// NoRDMA describes what to do about ErrNoRDMA.
const NoRDMA = "the kernel has no RDMA subsystem, or the container or sandbox hides it: on the host, " + GetDevice

// NoDescriptor describes what to do about EMFILE.
const NoDescriptor = "the process has no descriptor left: raise RLIMIT_NOFILE (`ulimit -n`)"

// errInterrupted means that the device list changed during every attempt to dump it.
var errInterrupted = errors.New("the list changed while it was read")

// Error is a failed request. errors.Is matches its Errno, and ErrNoRDMA if the kernel does not
// support RDMA netlink.
type Error struct {
	Op     string     // the request: "add link"
	Object string     // the device or client, may be empty
	Errno  unix.Errno // the kernel's errno
	Text   string     // the kernel's error text, may be empty
	Hint   string     // what to do about it, may be empty

	sentinel error
}

// Error implements error.
func (e *Error) Error() string {
	s := "rdma netlink: " + e.Op
	if e.Object != "" {
		s += " " + e.Object
	}
	s += ": " + e.Errno.Error()
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

// Unwrap returns the errno and, if applicable, ErrNoRDMA.
func (e *Error) Unwrap() []error {
	if e.sentinel != nil {
		return []error{e.Errno, e.sentinel}
	}
	return []error{e.Errno}
}

// errnoIs reports whether err wraps one of the errnos.
func errnoIs(err error, list ...unix.Errno) bool {
	var e unix.Errno
	return errors.As(err, &e) && slices.Contains(list, e)
}

// refused reports whether err means that netlink is not usable here, so that sysfs is worth a
// try: no protocol, no kernel socket in this network namespace, a seccomp filter, or a kernel
// without the command.
func refused(err error) bool {
	return errnoIs(err,
		unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, unix.ESOCKTNOSUPPORT, unix.ENOSYS,
		unix.ECONNREFUSED, unix.EPERM, unix.EACCES, unix.EOPNOTSUPP, unix.EINVAL)
}
