package cm

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A sentinel is an error that callers tell by errors.Is. It also matches the
// errno that the C library would have set.
type sentinel struct {
	text  string
	errno unix.Errno
}

func (s *sentinel) Error() string { return s.text }

// Is matches the errno, and what the errno matches: os.ErrPermission for EPERM.
func (s *sentinel) Is(target error) bool {
	return s.errno != 0 && (target == s.errno || s.errno.Is(target))
}

// The errors that callers tell apart by errors.Is, beside those of package
// uverbs: [uverbs.ErrClosed], [uverbs.ErrBusy], [uverbs.ErrInvalid],
// [uverbs.ErrNotSupported], [uverbs.ErrNoDevice] for an address that belongs to
// no RDMA device, [uverbs.ErrDeviceGone] and [uverbs.ErrState] for a send
// before the connection stands.
var (
	// ErrRejected: the peer, or its kernel where nobody listens, has refused.
	// The [Error] has the reason and the peer's private data.
	ErrRejected error = &sentinel{"cm: connection rejected", unix.ECONNREFUSED}
	// ErrUnreachable: no route to the peer, or it does not answer.
	ErrUnreachable error = &sentinel{"cm: peer unreachable", unix.EHOSTUNREACH}
	// ErrTimeout: the resolution of an address or a route took too long, or the
	// peer did not answer in time.
	ErrTimeout error = &sentinel{"cm: timed out", unix.ETIMEDOUT}
	// ErrDisconnected: the peer has ended the connection, or is gone.
	ErrDisconnected error = &sentinel{"cm: disconnected", unix.ECONNRESET}
	// ErrPrivateData: more private data than the message has room for.
	ErrPrivateData error = &sentinel{"cm: too much private data", unix.EINVAL}
	// ErrNoQP: the id has no QP, or no completion queue for that direction.
	ErrNoQP error = &sentinel{"cm: the id has no QP: call CreateQP first, after Bind to a device's address, ResolveAddr, or a connection request", unix.EINVAL}
	// ErrSharedCQ: SendComp and RecvComp wait on queues that the id made
	// itself: on a queue of the caller's there may be completions of others.
	ErrSharedCQ error = &sentinel{"cm: the completion queue is the caller's: poll it there, or leave SendCQ and RecvCQ nil in CreateQP", unix.EINVAL}
	// ErrCredentials: the process has changed its user, groups or capabilities,
	// and the kernel, which compares the credentials of threads by identity,
	// takes no command of it any more.
	ErrCredentials error = &sentinel{"cm: the program has changed its credentials while it ran: set user, groups and capabilities before it starts (setpriv, systemd's User=), or have it execute itself anew", unix.EACCES}
)

// An Error tells what failed on what, and why. errors.Is matches it with its
// Kind and with its Errno.
type Error struct {
	Op     string     // the operation: "connect"
	Object string     // what it was done on: an address as a rule
	Errno  unix.Errno // what the kernel said, or the errno that it would have said
	Kind   error      // a sentinel of this package or of uverbs, or nil
	Detail string     // the cause and the mend, as far as they are known

	Reason      RejectReason // with ErrRejected
	PrivateData []byte       // with ErrRejected: what the peer sent along
}

func (e *Error) Error() string {
	s := "cm: " + e.Op
	if e.Object != "" {
		s += " " + e.Object
	}
	switch {
	case e.Detail != "":
		s += ": " + e.Detail
	case e.Kind != nil:
		s += ": " + kindText(e.Kind)
	}
	if e.Errno != 0 {
		s += " (" + errnoName(e.Errno) + ")"
	}
	return s
}

// errNotSupp is ENOTSUPP, an errno of the kernel's own that slips out of it.
const errNotSupp unix.Errno = 524

func errnoName(e unix.Errno) string {
	if e == errNotSupp {
		return "ENOTSUPP"
	}
	if name := unix.ErrnoName(e); name != "" {
		return name
	}
	return "errno " + strconv.Itoa(int(e))
}

// Is matches the kind, the errno and what the errno stands for: ErrTimeout for
// a peer that is unreachable because it did not answer in time.
func (e *Error) Is(target error) bool {
	if e.Kind != nil && (target == e.Kind || errors.Is(e.Kind, target)) {
		return true
	}
	return e.Errno != 0 && (target == e.Errno || e.Errno.Is(target) || target == kindOf(e.Errno))
}

// Timeout tells whether time ran out, as net.Error's does.
func (e *Error) Timeout() bool { return e.Errno == unix.ETIMEDOUT }

func kindText(kind error) string {
	_, text, found := strings.Cut(kind.Error(), ": ")
	if !found {
		return kind.Error()
	}
	return text
}

// wrap makes an [Error] of what a command returned.
func wrap(op, object string, err error, detail string) error {
	if err == nil {
		return nil
	}
	var own *Error
	var verbs *uverbs.Error
	if errors.As(err, &own) || errors.As(err, &verbs) {
		return err // says already what failed
	}
	e := &Error{Op: op, Object: object, Detail: detail}
	switch {
	case errors.Is(err, rdmacm.ErrCredentials):
		e.Kind, e.Errno = ErrCredentials, unix.EACCES
	case errors.Is(err, os.ErrClosed):
		e.Kind, e.Errno = uverbs.ErrClosed, unix.EBADF
	case !errors.As(err, &e.Errno):
		e.Detail = err.Error()
	default:
		e.Kind = kindOf(e.Errno)
	}
	return e
}

// kindOf is what an errno of the connection manager means.
func kindOf(errno unix.Errno) error {
	switch errno {
	case unix.ENODEV:
		return uverbs.ErrNoDevice
	case unix.ETIMEDOUT:
		return ErrTimeout
	case unix.ENETUNREACH, unix.EHOSTUNREACH:
		return ErrUnreachable
	case unix.ECONNREFUSED:
		return ErrRejected
	case unix.ECONNRESET, unix.ENOTCONN:
		return ErrDisconnected
	case unix.EOPNOTSUPP, unix.ENOSYS, unix.EPROTONOSUPPORT, unix.EAFNOSUPPORT, errNotSupp:
		return uverbs.ErrNotSupported
	case unix.EBUSY:
		return uverbs.ErrBusy
	case unix.EIO:
		return uverbs.ErrDeviceGone
	case unix.EINVAL:
		return uverbs.ErrInvalid
	}
	return nil
}

func invalid(op, object, detail string) error {
	return &Error{Op: op, Object: object, Kind: uverbs.ErrInvalid, Errno: unix.EINVAL, Detail: detail}
}

func closed(op, object string) error {
	return &Error{Op: op, Object: object, Kind: uverbs.ErrClosed, Errno: unix.EBADF}
}

// RejectReason says why a connection was rejected: IBA vol. 1, 12.6.7.2.
type RejectReason int

// The reasons that are met in practice.
const (
	RejectNoQP             RejectReason = 1
	RejectTimeout          RejectReason = 4
	RejectInvalidServiceID RejectReason = 8  // nobody listens on that port
	RejectStaleConnection  RejectReason = 10 // the peer still holds an earlier connection of that QP number
	RejectConsumer         RejectReason = 28 // the program on the other side called Reject
	RejectVendorOption     RejectReason = 35 // RejectECE
)

func (r RejectReason) String() string {
	switch r {
	case RejectNoQP:
		return "no QP available"
	case RejectTimeout:
		return "timeout"
	case RejectInvalidServiceID:
		return "nobody listens there"
	case RejectStaleConnection:
		return "stale connection"
	case RejectConsumer:
		return "by the peer: its program, or its kernel where the listener is for other addresses"
	case RejectVendorOption:
		return "vendor option not supported"
	}
	return "reason " + strconv.Itoa(int(r))
}
