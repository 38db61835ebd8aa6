package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// These errors can be compared with [errors.Is]. Errors of the packages cm and uverbs are passed on, in an
// [Error].
var (
	// ErrDisconnected means that the connection has ended, because of the peer, the network or the
	// device. It is cm.ErrDisconnected.
	ErrDisconnected = cm.ErrDisconnected
	// ErrServerBusy means that the listener has no room for another handshake now. A later attempt may succeed. It is
	// cm.ErrServerBusy, and the error also matches cm.ErrRejected.
	ErrServerBusy = cm.ErrServerBusy
	// ErrServerLimit means that a limit of the listener is reached, in total or for the address of the client. It is
	// cm.ErrServerLimit, and the error also matches cm.ErrRejected.
	ErrServerLimit = cm.ErrServerLimit
	// ErrProtocol means that the peer does not use this package, or that it has sent something that this package never
	// sends. It is cm.ErrProtocol. The error of a client that a listener has refused also matches cm.ErrRejected.
	ErrProtocol = cm.ErrProtocol
	// ErrVersion means that the two sides speak no common version of the protocol: the error has the versions of both. It
	// is cm.ErrVersion. The error of a client that a listener has refused also matches cm.ErrRejected.
	ErrVersion = cm.ErrVersion
	// ErrUnauthenticated means that one of the two sides has not proved to the other who it is: see Options.TLS. It is
	// cm.ErrUnauthenticated. If the listener has refused the client at once, because only one of the sides sets
	// Options.TLS, the error also matches cm.ErrRejected.
	ErrUnauthenticated = cm.ErrUnauthenticated
	// ErrForged means that the connection has ended because something has arrived on it that the peer has not sent, or
	// not at this place: somebody changes, repeats, drops or adds messages, or the peer does not follow the protocol. See
	// Options.Seal. Nothing of it has reached the program.
	ErrForged = errors.New("rdma: a sealed message is not authentic")
	// ErrTooLong means that a message is longer than [Options].MaxMessage of the peer, that
	// private data does not fit, that a datagram is longer than the MTU, or that a buffer or a [Share] would be longer
	// than possible.
	ErrTooLong = errors.New("rdma: too long")
	// ErrReleased means that a [Buffer] has been released, or belongs to a message that has.
	ErrReleased = errors.New("rdma: the buffer has been released")
	// ErrForeign means that the connection cannot use a [Buffer]: it belongs to another device, or was allocated before
	// all connections of the device were closed, or it is the receive of a short message. Copy it to a buffer of
	// [Conn.Alloc], or for a [Region] use [Conn.BufferOf] of this connection.
	ErrForeign = errors.New("rdma: the connection cannot use this buffer: copy it to one of Conn.Alloc, or " +
		"for a region use its BufferOf")
	// ErrBounds means that a range is not within a [Token], a [Region] or a [Buffer].
	ErrBounds = errors.New("rdma: out of bounds")
	// ErrReadOnly means that a [ReadOnlyRegion] was to be read into, or shared with a right to change it.
	ErrReadOnly = errors.New("rdma: the region is read-only: use one of RegionOf")
	// ErrMisaligned means that the 8 bytes of an atomic operation do not have an address that is a multiple of 8.
	ErrMisaligned = errors.New("rdma: not aligned to 8 bytes")
	// ErrMemoryLimit means that the messages which a listener's programs have not released, with one that is to be
	// read, exceed ListenOptions.MaxMemory or MaxMemoryPerPeer.
	ErrMemoryLimit = errors.New("rdma: the listener's limit on memory is reached")
	// ErrRights means that a [Token] does not permit the operation.
	ErrRights = errors.New("rdma: the token does not permit it")
	// ErrUndelivered means that Close has ended the connection although the peer may not have received all of what was
	// sent. The error says how much, and why.
	ErrUndelivered = errors.New("rdma: messages may not have been delivered")
	// ErrNoMetadata means that a call has metadata and the peer's version of this package does not accept any: see
	// [WithMetadata].
	ErrNoMetadata = errors.New("rdma: the peer's version of this package accepts no metadata: update the peer, or send " +
		"it in the request")
	// ErrShutdown means that the connection is one of a listener that is shutting down: see [Listener.Shutdown].
	ErrShutdown = errors.New("rdma: the listener is shutting down")
	// ErrReplyTimeout means that the connection has ended because the peer has accepted no reply for two minutes. No call
	// of its program waits, such as Recv or Call, or it has not read the long replies before.
	ErrReplyTimeout = errors.New("rdma: the peer has accepted no reply for two minutes")
	// ErrNotCall means that a message does not want a reply, or has had one.
	ErrNotCall = errors.New("rdma: the message does not want a reply, or has had one")
)

// An Error is an error of an operation on a connection, a listener or a group. errors.Is matches
// what Err matches. If the deadline of a context has passed, it also matches os.ErrDeadlineExceeded. An Error is a
// net.Error.
type Error struct {
	Op    string         // such as "send"
	Local netip.AddrPort // may be the zero AddrPort
	Peer  netip.AddrPort // may be the zero AddrPort
	Err   error
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Op
	switch {
	case e.Peer.IsValid():
		s += " " + e.Peer.String()
	case e.Local.IsValid():
		s += " " + e.Local.String()
	}
	text := e.Err.Error()
	for _, prefix := range []string{"rdma: ", "cm: ", "uverbs: ", s + ": "} { // also of the same operation of package cm
		text = strings.TrimPrefix(text, prefix)
	}
	return "rdma: " + s + ": " + text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Is matches os.ErrDeadlineExceeded if a deadline has passed.
func (e *Error) Is(target error) bool {
	return target == os.ErrDeadlineExceeded && errors.Is(e.Err, context.DeadlineExceeded)
}

// Timeout reports whether a deadline has passed, or the peer has not replied in time. It is a method of net.Error.
func (e *Error) Timeout() bool {
	var cause interface{ Timeout() bool }
	switch {
	case errors.Is(e.Err, context.DeadlineExceeded):
		return true
	case errors.Is(e.Err, context.Canceled): // the error of an attempt before may be a timeout
		return false
	}
	return errors.As(e.Err, &cause) && cause.Timeout()
}

// Temporary is Timeout. It is a method of net.Error.
func (e *Error) Temporary() bool { return e.Timeout() }

// A CloseError is why a connection has ended that one of the sides has closed by [Conn.CloseWithError]. It matches
// net.ErrClosed on the side that has called it, and [ErrDisconnected] on the other.
type CloseError struct {
	Code   uint64
	Text   string // UTF-8, at most 114 bytes
	Remote bool   // the peer has closed the connection
}

// Error implements error.
func (e *CloseError) Error() string {
	side := "this side"
	if e.Remote {
		side = "the peer"
	}
	return fmt.Sprintf("rdma: %s has closed the connection with code %d: %q", side, e.Code, e.Text)
}

// Unwrap returns net.ErrClosed or ErrDisconnected.
func (e *CloseError) Unwrap() error {
	if e.Remote {
		return ErrDisconnected
	}
	return net.ErrClosed
}

// broken is the cause of the end of a connection that neither side has closed, or whose peer has not waited until all
// of its messages had been received. It matches ErrDisconnected, io.ErrUnexpectedEOF and the cause.
type broken struct{ cause error }

func (b *broken) Error() string {
	if errors.Is(b.cause, ErrDisconnected) { // the cause says so
		return b.cause.Error()
	}
	return "the connection has ended: " + b.cause.Error()
}
func (b *broken) Unwrap() []error { return []error{ErrDisconnected, io.ErrUnexpectedEOF, b.cause} }

// errPeerClosed is the cause if the peer has closed the connection and nothing of what it has sent is missing.
// errPeerCloses is the cause as long as messages that it has offered can still be read.
var (
	errPeerClosed = &peerClosed{[]error{ErrDisconnected, io.EOF}}
	errPeerCloses = &peerClosed{[]error{ErrDisconnected}}
)

type peerClosed struct{ matches []error }

func (*peerClosed) Error() string     { return "the connection has ended: the peer has closed it" }
func (p *peerClosed) Unwrap() []error { return p.matches }

// truncated is the cause if the peer has closed the connection before its messages could be read.
type truncated struct {
	messages int
	cause    error
}

func (t *truncated) Error() string {
	s := plural(t.messages, "message", "messages") + " could not be read, because the peer has closed it: the peer's " +
		"Options.Linger, or the context of its Shutdown, limits how long it waits"
	if isConsequence(t.cause) {
		return s
	}
	return s + ": " + t.cause.Error()
}
func (t *truncated) Unwrap() error { return t.cause }

// undelivered is the error of Close for what was sent and may not have been delivered.
type undelivered struct {
	tally
	cause error
}

func (u *undelivered) Error() string {
	return fmt.Sprintf("%v may not have been delivered: %v", u.tally, u.cause)
}
func (u *undelivered) Unwrap() []error { return []error{ErrUndelivered, u.cause} }

// tally counts messages and replies. It does not count calls: they have returned errors.
type tally struct{ messages, replies int }

func (t tally) String() string {
	messages, replies := plural(t.messages, "message", "messages"), plural(t.replies, "reply", "replies")
	switch {
	case t.replies == 0:
		return messages
	case t.messages == 0:
		return replies
	}
	return messages + " and " + replies
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", more)
}

// add counts what is of kind k.
func (t *tally) add(k kind) {
	switch k {
	case kindMessage:
		t.messages++
	case kindReply:
		t.replies++
	}
}

// forbidden is the cause if the peer's device refuses an access to the peer's memory.
type forbidden struct{ cause error }

func (*forbidden) Error() string {
	return "the peer does not permit the access (remote access error): the share of the token has ended, is of another " +
		"connection or permits less than the token says, or the peer's program has ended"
}
func (f *forbidden) Unwrap() error { return f.cause }

// unreadable is the cause if an offered message cannot be read: the offer is wrong, or the peer was killed. The kernel
// closes the memory of such a program before it ends its connections.
type unreadable struct{ cause error }

func (*unreadable) Error() string {
	return "the memory of an offered message cannot be read: the peer has ended, or its offer is wrong"
}
func (u *unreadable) Unwrap() error { return u.cause }

// isConsequence reports whether err only says that the QP does not work any more.
func isConsequence(err error) bool {
	return errors.Is(err, uverbs.WCWRFlushErr) || errors.Is(err, uverbs.ErrState)
}
