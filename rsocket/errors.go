package rsocket

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// These errors can be compared with [errors.Is]. They are the Err of a [net.OpError], as are those of the packages cm
// and uverbs.
var (
	// ErrProtocol means that the peer is no rsocket, uses another version of the protocol, or does not follow it.
	ErrProtocol = errors.New("rsocket: the peer does not follow the protocol")
	// ErrNoRDMA means that there is no connection by RDMA: this machine has no RDMA device or no connection
	// manager, the address belongs to no device, or none reaches it. A program may try TCP then: [net.Dial].
	ErrNoRDMA = errors.New("rsocket: not reachable by RDMA")
	// ErrIdle means that this side has ended the connection, since nothing was sent or received for
	// Config.IdleTimeout.
	ErrIdle = errors.New("rsocket: idle for too long")
	// ErrServerBusy means that the listener has no room for another client at the moment. It is cm.ErrServerBusy, and the
	// error also matches ECONNREFUSED.
	ErrServerBusy = cm.ErrServerBusy
	// ErrServerLimit means that a limit of the listener is reached, in total or for the address of the client. It is
	// cm.ErrServerLimit, and the error also matches ECONNREFUSED.
	ErrServerLimit = cm.ErrServerLimit
	// ErrMapping means that no mapping of the peer contains the range.
	ErrMapping = errors.New("rsocket: the peer has not mapped this range")
)

// dialError returns the error of Dial or Listen for one of package cm.
func dialError(err error) error {
	for _, e := range []error{uverbs.ErrNoDevice, uverbs.ErrNoNode, cm.ErrUnreachable} {
		if errors.Is(err, e) {
			return &noRDMA{err}
		}
	}
	return err
}

// noRDMA matches ErrNoRDMA and its cause.
type noRDMA struct{ cause error }

func (e *noRDMA) Error() string {
	return ErrNoRDMA.Error() + ": " + e.cause.Error() + "; use package net for TCP"
}
func (e *noRDMA) Unwrap() []error { return []error{ErrNoRDMA, e.cause} }

// Timeout is for net.OpError.
func (e *noRDMA) Timeout() bool {
	var cause interface{ Timeout() bool }
	return errors.As(e.cause, &cause) && cause.Timeout()
}

// reset is the error of a connection that has ended before its time. It matches cm.ErrDisconnected, and so
// syscall.ECONNRESET, io.ErrUnexpectedEOF and the cause.
type reset struct{ cause error }

func (e *reset) Error() string   { return "connection reset: " + e.cause.Error() }
func (e *reset) Unwrap() []error { return []error{cm.ErrDisconnected, io.ErrUnexpectedEOF, e.cause} }

// peerClosed is the error of a write if the peer has closed the connection in order.
type peerClosed struct{}

func (peerClosed) Error() string { return "connection reset: the peer has closed it" }
func (peerClosed) Unwrap() error { return cm.ErrDisconnected }

// idle matches ErrIdle.
type idle struct{ timeout time.Duration }

func (e *idle) Error() string {
	return "nothing was sent or received for Config.IdleTimeout, " + e.timeout.String()
}
func (e *idle) Unwrap() error { return ErrIdle }

// Causes of the end of a connection.
var (
	errPeerClosed = peerClosed{}
	errPeerGone   = &reset{errors.New("the peer has ended it without closing it: its program has ended, or its device " +
		"has lost the connection")}
	errQPFailed = &reset{errors.New("the device has failed its queue pair: the network was interrupted, or the " +
		"peer's machine has failed")}
	errPeerSilent  = errors.New("the peer's device does not reply")
	errWriteClosed = &writeClosed{}
)

// writeClosed is the error of a Write after CloseWrite.
type writeClosed struct{}

func (*writeClosed) Error() string        { return "write after CloseWrite" }
func (*writeClosed) Is(target error) bool { return target == syscall.EPIPE }

// temporary is the error of one connection that could not be set up. A server may accept others.
type temporary struct{ error }

func (t temporary) Unwrap() error { return t.error }
func (t temporary) Timeout() bool { return false }

// Temporary makes servers such as net/http's go on after the error.
func (t temporary) Temporary() bool { return true }

// opError returns the error of a call.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}
