package cm

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"github.com/goverbs/goverbs/internal/rdmacm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A sentinel is an error to be compared with errors.Is. It also matches the errno
// that the C library would have set.
type sentinel struct {
	text  string
	errno unix.Errno
}

func newSentinel(text string, errno unix.Errno) error { return &sentinel{text, errno} }

func (s *sentinel) Error() string { return s.text }

// Is matches the errno and what the errno matches, such as os.ErrPermission for
// EPERM.
func (s *sentinel) Is(target error) bool {
	return s.errno != 0 && (target == s.errno || s.errno.Is(target))
}

// listenerEnd is the type of ErrListenerClosed.
type listenerEnd struct{}

func (listenerEnd) Error() string        { return "cm: the listener has ended" }
func (listenerEnd) Is(target error) bool { return target == net.ErrClosed }

// These errors, and those of package uverbs, can be compared with errors.Is:
// [uverbs.ErrClosed], [uverbs.ErrBusy], [uverbs.ErrInvalid],
// [uverbs.ErrNotSupported], [uverbs.ErrNoDevice] for an address that does not belong
// to an RDMA device, [uverbs.ErrDeviceGone], and [uverbs.ErrState] for a send before
// the connection is established.
var (
	// ErrRejected means that the peer has rejected the request, or its kernel because
	// no program listens. The [Error] has the reason and the peer's private data.
	ErrRejected = newSentinel("cm: connection rejected", unix.ECONNREFUSED)
	// ErrServerBusy means that the server's listener has no room for another handshake
	// now, or did not wait until the client confirmed the connection. A later attempt may
	// succeed. The error of the client also matches ErrRejected.
	ErrServerBusy = newSentinel("cm: the server is busy: its listener has no room for another handshake now,"+
		" and a later attempt may succeed", unix.ECONNREFUSED)
	// ErrServerLimit means that a limit of the server's listener is reached, on
	// connections or memory, in total or for the client's address. The error of the
	// client also matches ErrRejected.
	ErrServerLimit = newSentinel("cm: the server's limit on connections or memory is reached, in total or for this"+
		" address", unix.ECONNREFUSED)
	// ErrVersion means that the two programs speak no common version of their protocol.
	// The text has the versions of both. The error of a client whose server has refused
	// it also matches ErrRejected.
	ErrVersion = newSentinel("cm: the peer speaks other versions of the protocol", unix.EPROTONOSUPPORT)
	// ErrUnauthenticated means that one of the two sides has not proved to the other who it
	// is. The error of a client whose server has refused it also matches ErrRejected.
	ErrUnauthenticated = newSentinel("cm: a side has not proved its identity", unix.EACCES)
	// ErrProtocol means that the peer's program speaks another protocol. The error of a
	// client whose server has refused it also matches ErrRejected.
	ErrProtocol = newSentinel("cm: the peer does not follow the protocol", unix.EPROTO)
	// ErrUnreachable means that there is no route to the peer, or that it does not
	// reply.
	ErrUnreachable = newSentinel("cm: peer unreachable", unix.EHOSTUNREACH)
	// ErrTimeout means that the resolution of an address or a route took too long, or
	// that the peer did not reply in time.
	ErrTimeout = newSentinel("cm: timed out", unix.ETIMEDOUT)
	// ErrDisconnected means that the peer has ended the connection or no longer
	// exists.
	ErrDisconnected = newSentinel("cm: disconnected", unix.ECONNRESET)
	// ErrListenerClosed means that the listener has ended, because it was closed or
	// because its device was removed. The cause in the error says which. The error
	// also matches net.ErrClosed.
	ErrListenerClosed = error(listenerEnd{})
	// ErrPrivateData means that there is more private data than the message has room
	// for.
	ErrPrivateData = newSentinel("cm: too much private data", unix.EINVAL)
	// ErrNoQP means that the id has no QP, or no completion queue for that direction.
	ErrNoQP = newSentinel("cm: the id has no QP: call CreateQP first, after Bind to a device's address, ResolveAddr,"+
		" or a connection request", unix.EINVAL)
	// ErrSharedCQ means that SendComp or RecvComp cannot wait because the caller has
	// created the completion queue. It may contain completions of other QPs.
	ErrSharedCQ = newSentinel("cm: the completion queue is the caller's: poll it there,"+
		" or leave SendCQ and RecvCQ nil in CreateQP", unix.EINVAL)
	// ErrCredentials means that the process has changed its user, groups or
	// capabilities. The kernel compares the credentials of threads by identity and
	// refuses all further commands. Set user, groups and capabilities before the program
	// starts (setpriv, systemd's User=), or have it execute itself again.
	ErrCredentials = newSentinel("cm: the program has changed its user, groups or capabilities while it ran", unix.EACCES)
)

// An Error describes which operation failed on which object, and why. errors.Is
// matches its Kind, its Errno and what Err matches.
type Error struct {
	Op     string     // the operation, such as "connect". Empty if the error is of an event
	Object string     // what it was done on, usually an address
	Errno  unix.Errno // from the kernel, or what the kernel would have returned
	Kind   error      // a sentinel of this package or of uverbs, or nil
	Detail string     // the cause and the fix, if known
	Err    error      // the error that caused this one, or nil

	Reason      RejectReason // with ErrRejected
	PrivateData []byte       // with ErrRejected: from the peer
}

func (e *Error) Error() string {
	s := "cm: "
	if name := strings.TrimSpace(e.Op + " " + e.Object); name != "" {
		s += name
		if e.Detail != "" || e.Err != nil || e.Kind != nil {
			s += ": "
		}
	}
	switch {
	case e.Detail != "":
		s += e.Detail
	case e.Err != nil: // it contains the errno, if it has one
		return s + strings.TrimPrefix(e.Err.Error(), "cm: ")
	case e.Kind != nil:
		s += kindText(e.Kind)
	}
	if e.Errno != 0 {
		s += " (" + errnoName(e.Errno) + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// errNotSupp is ENOTSUPP, an internal errno of the kernel that some commands return.
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

// Is matches the kind, the errno and the kind of the errno. For example, ErrTimeout
// also matches a peer that is unreachable because it did not reply in time.
func (e *Error) Is(target error) bool {
	if e.Kind != nil && errors.Is(e.Kind, target) {
		return true
	}
	return e.Errno != 0 && (target == e.Errno || e.Errno.Is(target) || target == kindOf(e.Errno))
}

// Timeout reports whether the error is a timeout. It is a method of net.Error.
func (e *Error) Timeout() bool {
	var cause interface{ Timeout() bool }
	return e.Errno == unix.ETIMEDOUT || errors.As(e.Err, &cause) && cause.Timeout()
}

// Temporary is Timeout. It is a method of net.Error.
func (e *Error) Temporary() bool { return e.Timeout() }

func kindText(kind error) string {
	_, text, found := strings.Cut(kind.Error(), ": ")
	if !found {
		return kind.Error()
	}
	return text
}

// wrap converts the error of a command to an [Error].
func wrap(op, object string, err error, detail string) error {
	if err == nil {
		return nil
	}
	var own *Error
	var verbs *uverbs.Error
	if errors.As(err, &own) || errors.As(err, &verbs) {
		return err // it already describes what failed
	}
	e := &Error{Op: op, Object: object, Detail: detail}
	switch {
	case errors.Is(err, rdmacm.ErrCredentials):
		e.Kind, e.Errno, e.Detail = ErrCredentials, unix.EACCES, kindText(ErrCredentials)+
			": set them before it starts (setpriv, systemd's User=), or have it execute itself again"
	case errors.Is(err, os.ErrClosed):
		e.Kind, e.Errno = uverbs.ErrClosed, unix.EBADF
	case !errors.As(err, &e.Errno):
		e.Err = err
	default:
		e.Kind = kindOf(e.Errno)
	}
	return e
}

// operationError returns the error of an operation that consists of several steps. Its cause
// is err. Its other fields are copied from err.
func operationError(op, object string, err error) error {
	e := &Error{Op: op, Object: object, Err: withoutObject(err, object)}
	var own *Error
	var verbs *uverbs.Error
	switch {
	case errors.As(err, &own):
		e.Kind, e.Errno, e.Reason, e.PrivateData = own.Kind, own.Errno, own.Reason, own.PrivateData
	case errors.As(err, &verbs):
		e.Kind, e.Errno = verbs.Kind, verbs.Errno
	}
	return e
}

// withoutObject returns err without its object if the error around it has the same
// object.
func withoutObject(err error, object string) error {
	if own, ok := err.(*Error); ok && own.Object == object {
		inner := *own
		inner.Object = ""
		return &inner
	}
	return err
}

// noName is the name of an id without addresses.
const noName = "id"

// withObject replaces the object of err if it is an id that has no address yet.
func withObject(object string, err error) error {
	own, ok := err.(*Error)
	if !ok || own.Object != noName {
		return err
	}
	e := *own
	e.Object = object
	return &e
}

// The operations of the data path.
const (
	opPost = "post to"
	opWait = "wait on"
)

// withOp returns the error of an operation that fails because of why the id has ended.
func withOp(op string, why error) error {
	own, ok := why.(*Error)
	if !ok {
		return why
	}
	e := *own
	e.Op = op
	return &e
}

// joinErrors joins two errors. The second may be nil.
func joinErrors(err, second error) error {
	if second == nil {
		return err
	}
	return errors.Join(err, second)
}

// ended returns the error of an operation that ctx has ended.
func ended(ctx context.Context, op, object string) error {
	return &Error{Op: op, Object: object, Err: ctxerr.Of(ctx)}
}

// withStep adds the name of the failed step to err, unless err has a name. That of a function of the caller may have
// none.
func withStep(op string, err error) error {
	var own *Error
	var verbs *uverbs.Error
	if err == nil || errors.As(err, &own) || errors.As(err, &verbs) {
		return err
	}
	return &Error{Op: op, Err: err}
}

// kindOf returns the kind of an errno of the connection manager.
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

const opAcceptAt = "accept at"

// listenerClosed returns the error of a listener that has ended because of why, the error of its id.
func listenerClosed(name string, why error) error {
	e := &Error{Op: opAcceptAt, Object: name, Kind: ErrListenerClosed}
	var own *Error
	if errors.As(why, &own) {
		if e.Errno = own.Errno; own.Kind == uverbs.ErrClosed && own.Detail == "" {
			e.Err = errListenerClosed
			return e
		}
	}
	e.Err = withOp("", withoutObject(why, name))
	return e
}

// errListenerClosed is the cause if the program has closed the listener.
var errListenerClosed = &Error{Kind: uverbs.ErrClosed, Detail: "the listener has been closed"}

// RejectReason is why a connection was rejected: IBA vol. 1, 12.6.7.2.
type RejectReason int

// The common reasons.
const (
	RejectNoQP             RejectReason = 1
	RejectTimeout          RejectReason = 4
	RejectInvalidServiceID RejectReason = 8  // no program listens on that port
	RejectStaleConnection  RejectReason = 10 // the peer still has an earlier connection of that QP number
	RejectConsumer         RejectReason = 28 // the peer called Reject
	RejectVendorOption     RejectReason = 35 // RejectECE
)

func (r RejectReason) String() string {
	switch r {
	case RejectNoQP:
		return "no QP available"
	case RejectTimeout:
		return "timeout"
	case RejectInvalidServiceID:
		return "no program listens on that port"
	case RejectStaleConnection:
		return "stale connection"
	case RejectConsumer:
		return "by the peer: its program, or its kernel where the listener is for other addresses"
	case RejectVendorOption:
		return "vendor option not supported"
	}
	return "reason " + strconv.Itoa(int(r))
}
