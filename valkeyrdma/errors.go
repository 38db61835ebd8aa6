package valkeyrdma

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// ErrProtocol means that the peer does not speak Valkey's RDMA protocol. It can be compared with [errors.Is].
var ErrProtocol = errors.New("valkeyrdma: the peer does not follow the protocol")

var errTLS = fmt.Errorf("%w: Valkey has no TLS over RDMA: leave ClientOption.TLSConfig nil", uverbs.ErrNotSupported)

// reset is the error of a connection that has ended before its time. It matches cm.ErrDisconnected, and so
// syscall.ECONNRESET, io.ErrUnexpectedEOF and the cause.
type reset struct{ cause error }

func (e *reset) Error() string   { return "connection reset: " + e.cause.Error() }
func (e *reset) Unwrap() []error { return []error{cm.ErrDisconnected, io.ErrUnexpectedEOF, e.cause} }

// Causes of the end of a connection.
var (
	errPeerClosed = &reset{errors.New("the peer has ended it")} // Read returns io.EOF
	errQPFailed   = &reset{errors.New("the device has failed its queue pair: the network was interrupted, or the " +
		"peer's machine has failed")}
	errPeerSilent  = errors.New("the peer's device does not reply")
	errNotReceived = errors.New("the peer may not have received everything that was written")
)

// cause returns why a call, a completion or a check has failed with err.
func (c *Conn) cause(err error) error {
	ended := errors.Is(err, uverbs.WCWRFlushErr) || errors.Is(err, uverbs.ErrState) || errors.Is(err, cm.ErrDisconnected)
	end := c.cm.Err()
	switch {
	case errors.Is(err, ErrProtocol) || errors.Is(err, errPeerSilent) || !ended:
		return &reset{err}
	case end == nil: // without an event of the peer
		return errQPFailed
	case errors.Is(end, cm.ErrDisconnected):
		return errPeerClosed
	}
	return &reset{end}
}

// opError returns the error of a call.
func (c *Conn) opError(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: network, Source: c.local, Addr: c.remote, Err: err}
}
