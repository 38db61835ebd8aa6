package uverbs

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/goverbs/goverbs/internal/nldev"
	"golang.org/x/sys/unix"
)

// A sentinel is a preallocated error, which the posting and polling paths return without
// allocating. It also matches the errno that the C library returns in the same case.
type sentinel struct {
	text  string
	errno unix.Errno
	kinds []error // more general errors that it also matches
}

func newSentinel(text string, errno unix.Errno) error { return &sentinel{text: text, errno: errno} }

func (s *sentinel) Error() string { return s.text }

// Is reports whether s matches target: its errno, or an error that its errno matches, such as
// os.ErrPermission for EPERM.
func (s *sentinel) Is(target error) bool {
	return s.errno != 0 && (target == s.errno || s.errno.Is(target))
}

// Unwrap returns the more general errors.
func (s *sentinel) Unwrap() []error { return s.kinds }

// The errors that callers distinguish with errors.Is. The posting path returns them directly.
// Elsewhere they are the Kind of an [Error] with more details.
var (
	// ErrClosed: the object, or one that it depends on, has been closed. It matches
	// net.ErrClosed and os.ErrClosed.
	ErrClosed error = &sentinel{
		text:  "uverbs: use of a closed object",
		errno: unix.EBADF,
		kinds: []error{net.ErrClosed, os.ErrClosed},
	}
	// ErrBusy: the object is in use by other objects, which must be closed first.
	ErrBusy = newSentinel("uverbs: object in use", unix.EBUSY)
	// ErrInvalid: an argument is outside the range that the object or the device supports.
	ErrInvalid = newSentinel("uverbs: invalid argument", unix.EINVAL)
	// ErrNotSupported: this kernel, driver or device does not support the operation.
	ErrNotSupported = newSentinel("uverbs: not supported by this device or kernel", unix.EOPNOTSUPP)
	// ErrNoDevice: there is no RDMA device of that name, or none at all.
	ErrNoDevice = newSentinel("uverbs: no such RDMA device", unix.ENODEV)
	// ErrNoProvider: the program links no provider for the device's driver.
	ErrNoProvider = newSentinel("uverbs: no provider for the device's driver", 0)
	// ErrABI: this library does not support the kernel's ABI version.
	ErrABI = newSentinel("uverbs: unknown kernel ABI", unix.ENOSYS)
	// ErrNoNode: the device has no node under /dev/infiniband.
	ErrNoNode = newSentinel("uverbs: device node missing", unix.ENOENT)
	// ErrNetns: the device belongs to another network namespace.
	ErrNetns = newSentinel("uverbs: device of another network namespace", unix.EPERM)
	// ErrMemlock: RLIMIT_MEMLOCK does not allow pinning that much memory.
	ErrMemlock = newSentinel("uverbs: locked-memory limit too low", unix.ENOMEM)
	// ErrDeviceGone: the device was removed, or has failed for good. Close the Context, and open
	// the device again when it is back.
	ErrDeviceGone = newSentinel("uverbs: the device was removed or has failed: close the Context", unix.EIO)

	// ErrCQOverrun: more requests completed than the CQ had room for, and their completions are
	// lost; or the CQ failed in another way. Close it with its QPs, and create it with more
	// Entries, or poll it before more is posted.
	ErrCQOverrun = newSentinel("uverbs: completion queue overrun: it was full, and completions are lost", 0)

	// ErrQueueFull: the queue has no room for the work request.
	ErrQueueFull = newSentinel("uverbs: queue full: poll completions of signaled requests first, or raise MaxSendWR or "+
		"MaxRecvWR", unix.ENOMEM)
	// ErrRange: the range of an SGE or of a memory window is not inside the memory region, or a
	// message has more than MaxMessage bytes. Check the range given to MR.SGE, and that the MR is
	// open.
	ErrRange = newSentinel("uverbs: a range outside its memory region, or a message over 2^31 bytes", unix.EINVAL)
	// ErrTooManySGEs: a request has more scatter/gather elements than the queue was created
	// for.
	ErrTooManySGEs = newSentinel("uverbs: more SGEs than the queue was created for: raise MaxSendSGE or "+
		"MaxRecvSGE", unix.EINVAL)
	// ErrInlineTooLong: a request has more inline data than the queue was created for.
	ErrInlineTooLong = newSentinel("uverbs: more inline data than the queue was created for: raise MaxInline", unix.EINVAL)
	// ErrOpcode: the opcode or a flag is unknown. The three errors below give other reasons why a
	// QP does not accept a request, and match it too.
	ErrOpcode = newSentinel("uverbs: unknown opcode or flag, or one that does not fit the request", unix.EINVAL)
	// ErrQPType: no device supports the operation or flag on QPs of this type. It matches
	// ErrOpcode. Raw packet QPs have SEND, and the flag ether.IPCsum. UD QPs have SEND and SEND_IMM, to
	// the address of SendBatch.UDAddr; SRD QPs also have WRITE, WRITE_IMM and READ. UC QPs have SEND,
	// SEND_IMM, WRITE, WRITE_IMM, BIND_MW and LOCAL_INV.
	// SendBatch.RemoteSRQ is for XRCSend QPs, DCAddr for DCIs.
	ErrQPType error = &sentinel{
		text:  "uverbs: QPs of this type do not have this operation or flag",
		errno: unix.EINVAL,
		kinds: []error{ErrOpcode},
	}
	// ErrOpNotSupported: the device does not support the operation or flag on QPs of this type:
	// see CapFlags of Context.QueryDevice. It matches ErrOpcode and ErrNotSupported.
	ErrOpNotSupported error = &sentinel{
		text:  "uverbs: the device does not support this operation or flag on QPs of this type",
		errno: unix.EINVAL,
		kinds: []error{ErrOpcode, ErrNotSupported},
	}
	// ErrMalformed: the parts of the request do not fit together: inline data with an SGL, a READ
	// or an atomic; an SGL with a LOCAL_INV, BIND_MW, FLUSH or ATOMIC_WRITE; or, in a batch, data
	// or an address without an operation, or inline data twice. It matches ErrOpcode.
	ErrMalformed error = &sentinel{
		text:  "uverbs: malformed request: the operation and its data or address do not fit together",
		errno: unix.EINVAL,
		kinds: []error{ErrOpcode},
	}
	// ErrRdAtomic: a READ or an atomic was posted on a connection that allows none. rxe reports
	// this. Other devices may carry out the request all the same. With package cm, InitiatorDepth
	// of this side and ResponderResources of the peer must be at least 1.
	ErrRdAtomic = newSentinel("uverbs: the connection allows no READs and atomics: QPAttr.MaxRdAtomic is 0", unix.EINVAL)
	// ErrAtomicSize: the local memory of an atomic does not have 8 bytes.
	ErrAtomicSize = newSentinel("uverbs: an atomic request needs one SGE of 8 bytes for the previous value", unix.EINVAL)
	// ErrNoMW: an OpBindMW request names no window.
	ErrNoMW = newSentinel("uverbs: a BIND_MW request needs a window: set SendWR.Bind, with its MW", unix.EINVAL)
	// ErrForeignMW: the window, or its MR, belongs to another PD than the QP.
	ErrForeignMW = newSentinel("uverbs: the memory window or its MR belongs to another PD than the QP: create them "+
		"on the QP's PD", unix.EPERM)
	// ErrNoAH: a request of a UD or SRD QP, or of a DCI, has no destination. In a batch, UDAddr or, on a DCI,
	// DCAddr comes after the operation.
	ErrNoAH = newSentinel("uverbs: a request of a UD or SRD QP or a DCI needs an address: set SendWR.AH, or call UDAddr "+
		"or DCAddr of the SendBatch", unix.EINVAL)
	// ErrNoStreams: a request of a DCI names a stream, and the DCI has none.
	ErrNoStreams = newSentinel("uverbs: this DCI has no streams: set DCIStreams of its QPConfig, or leave "+
		"SendWR.DCStream out", unix.EINVAL)
	// ErrUnsignaled: a request is not signaled, and the device completes every request. Set Signaled, or
	// QPConfig.SignalAll. EFA devices report this. It matches ErrOpcode and ErrNotSupported.
	ErrUnsignaled error = &sentinel{
		text:  "uverbs: this device has no unsignaled requests: set the flag Signaled, or SignalAll of QPConfig",
		errno: unix.EINVAL,
		kinds: []error{ErrOpcode, ErrNotSupported},
	}
	// ErrForeignAH: the AH belongs to another PD than the QP.
	ErrForeignAH = newSentinel("uverbs: the AH belongs to another PD than the QP: create it on the QP's PD", unix.EINVAL)
	// ErrTooLong: a message on a UD QP is longer than a packet. On RoCE, the MTU of the port
	// follows from the MTU of the network interface.
	ErrTooLong = newSentinel("uverbs: a UD message is longer than the port's active MTU (Context.QueryPort)",
		unix.EMSGSIZE)
	// ErrFrameHeader: the device requires the first 18 bytes of a raw packet inside the request,
	// and the packet is shorter, or they are not in memory of this process. Pass them, or the
	// whole packet, as SendWR.Inline or with SendBatch.Inline before the SGEs.
	ErrFrameHeader = newSentinel("uverbs: this device needs the first 18 bytes of a raw packet as inline data",
		unix.EINVAL)
	// ErrTSO: a TSO has no MSS, fewer than 14 bytes of headers, more of them than
	// QPConfig.MaxTSOHeader, or more data than the device can send in one request. The headers are
	// SendWR.Inline, or the argument of SendBatch.TSO.
	ErrTSO = newSentinel("uverbs: a TSO needs an MSS, headers of 14 to MaxTSOHeader bytes, and at most TSO.MaxSize "+
		"of data", unix.EINVAL)
	// ErrState: the QP's state does not allow the operation: sends need RTS, receives need
	// INIT. Connect, Ready and Modify move the QP there, and in package cm Dial and Accept:
	// receives can be posted before they return, in Options.Setup, and sends cannot.
	ErrState = newSentinel("uverbs: the QP's state does not allow this: sends need RTS, receives INIT", unix.EINVAL)
	// ErrSRQ: PostRecv was called on a QP that uses an SRQ.
	ErrSRQ = newSentinel("uverbs: this QP uses the receives of its SRQ: post them there", unix.EINVAL)
	// ErrNoQueue: a request was posted on a QP that was created without that queue, or whose
	// type has none: XRCSend QPs and DCIs only send, XRCRecv QPs and DCTs have no queue, and a QP
	// with RSS has the WQs of its table. Their receives are posted to their SRQs and WQs.
	ErrNoQueue = newSentinel("uverbs: this QP has no such queue: set MaxSendWR or MaxRecvWR of its QPConfig", unix.EINVAL)
	// ErrNoSRQN: an operation in a batch of an XRCSend QP has no destination SRQ.
	ErrNoSRQN = newSentinel("uverbs: an XRCSend QP's operation needs an SRQ of the peer: call SendBatch.RemoteSRQ "+
		"after it", unix.EINVAL)
)

// An Error describes which operation failed on which object, and why. errors.Is matches it with
// its Kind, which is nil or an error variable of this package, with its Errno, and with what
// Err matches.
type Error struct {
	Op     string     // the operation, such as "create CQ"
	Object string     // the object of the operation, such as "rxe0" or "QP 17"
	Errno  unix.Errno // the kernel's errno, or the one that the kernel would have returned
	Kind   error      // an error variable of this package, or nil
	Detail string     // the cause and the fix, as far as known
	Err    error      // the error that caused this one, or nil
}

func (e *Error) Error() string {
	s := "uverbs: " + e.Op
	switch {
	case e.Object == "":
	case strings.Contains(e.Op, " "): // "create CQ on rxe0"
		s += " on " + e.Object
	default: // "open rxe0"
		s += " " + e.Object
	}
	switch {
	case e.Detail != "":
		s += ": " + e.Detail
	case e.Err != nil:
		s += ": " + e.Err.Error()
	case e.Kind != nil:
		s += ": " + kindText(e.Kind)
	}
	if e.Errno != 0 {
		s += " (" + errnoName(e.Errno) + ")"
	}
	return s
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the kind or the errno matches target.
func (e *Error) Is(target error) bool {
	if e.Kind != nil && errors.Is(e.Kind, target) {
		return true
	}
	return e.Errno != 0 && (target == e.Errno || e.Errno.Is(target))
}

// Timeout reports whether a deadline has passed, as in net.Error.
func (e *Error) Timeout() bool {
	var cause interface{ Timeout() bool }
	return e.Errno == unix.ETIMEDOUT || errors.As(e.Err, &cause) && cause.Timeout()
}

// named returns the error of a call off the data path, with the operation and the object.
func named(op, object string, err error) error {
	kind, ok := err.(*sentinel)
	if !ok {
		return err
	}
	return &Error{Op: op, Object: object, Kind: kind}
}

func kindText(kind error) string {
	const prefix = "uverbs: "
	s := kind.Error()
	if len(s) > len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):]
	}
	return s
}

func errnoName(e unix.Errno) string {
	if s := unix.ErrnoName(e); s != "" {
		return s
	}
	return "errno " + strconv.Itoa(int(e))
}

// kindOf returns the sentinel of an errno, or nil. isDeviceGone decides whether an
// errno means that the device is gone.
func kindOf(errno unix.Errno) error {
	switch errno {
	case unix.EOPNOTSUPP, unix.EPROTONOSUPPORT, unix.ENOSYS, unix.ENOTTY:
		return ErrNotSupported
	case unix.EBUSY:
		return ErrBusy
	case unix.EINVAL, unix.ENODATA:
		return ErrInvalid
	}
	return nil
}

// notSupported reports whether a command failed because the kernel or the driver
// does not support it.
func notSupported(err error) bool { return kindOf(errnoOf(err)) == ErrNotSupported }

// invalid returns the error for an argument that is refused without asking the
// kernel.
func invalid(op, object, detail string) error {
	return &Error{Op: op, Object: object, Kind: ErrInvalid, Errno: unix.EINVAL, Detail: detail}
}

func errnoOf(err error) unix.Errno {
	var errno unix.Errno
	errors.As(err, &errno)
	return errno
}

// explainFDs returns the advice for EMFILE.
func explainFDs(err error) string {
	if errors.Is(err, unix.EMFILE) {
		return nldev.NoDescriptor
	}
	return ""
}

func sitoa(v int) string { return strconv.Itoa(v) }

func itoa(v uint64) string { return strconv.FormatUint(v, 10) }
