package s3rdma

import (
	"errors"
	"fmt"
)

// The errors that callers distinguish with errors.Is. Their texts continue with the numbers, the limit and the fix.
var (
	// ErrToken: the client's token is not one of the wire.
	ErrToken = errors.New("s3rdma: malformed token")
	// ErrBusy: all transfers that the Handler's limits allow are in progress.
	ErrBusy = errors.New("s3rdma: too many transfers")
	// ErrTooLarge: the data is longer than the limit, or than the memory that the client offers.
	ErrTooLarge = errors.New("s3rdma: too large")
	// ErrTimeout: a transfer has not ended in time.
	ErrTimeout = errors.New("s3rdma: the transfer took too long")
	// ErrTransfer: the device could not move the data.
	ErrTransfer = errors.New("s3rdma: transfer failed")
	// ErrChecksum: the data is not that of the checksum that the other side sent.
	ErrChecksum = errors.New("s3rdma: wrong checksum")
	// ErrProtocol: the peer's headers are malformed, or contradict the request or each other.
	ErrProtocol = errors.New("s3rdma: the peer does not follow the protocol")
	// ErrDeclined: the server does not use RDMA for the request.
	ErrDeclined = errors.New("s3rdma: the server declined")
	// ErrClosed: the Transport or the Handler is closed.
	ErrClosed = errors.New("s3rdma: closed")

	errNoDevice = errors.New("s3rdma: Device is nil")
)

func tokenError(what string) error { return fmt.Errorf("%w: %s", ErrToken, what) }

// publicText returns what a client may read of an error: what is wrong with its own request, or else only which of the
// errors above it is. Handler.Observe gets the error as it is.
func publicText(err error) string {
	if e := (*refusal)(nil); errors.As(err, &e) {
		err = e.err // without the errors that it is joined with
	}
	for _, kind := range []error{ErrTransfer, ErrTimeout, ErrClosed, ErrBusy, ErrDeclined} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	for _, kind := range []error{ErrToken, ErrProtocol, ErrTooLarge} {
		if errors.Is(err, kind) {
			return err.Error()
		}
	}
	return "s3rdma: the server failed"
}
