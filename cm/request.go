package cm

import (
	"context"
	"errors"
)

// A Request is a connection request that has not been accepted or rejected yet.
type Request struct {
	id      *SyncID
	options *Options
}

// ID returns the id of the future connection.
func (r *Request) ID() *SyncID { return r.id }

// PrivateData returns the private data in the request, padded with zeros.
func (r *Request) PrivateData() []byte { return r.id.Event().PrivateData }

// Accept accepts the connection and waits until the peer has confirmed it. If the
// peer does not, this takes about 70 seconds unless ctx ends first. Nil options
// stand for the listener's. Any error, including the one of ctx, ends the
// connection. The errors are those of [ID.CreateQP] and [SyncID.Accept], or what
// Prepare, Setup or Established returns.
func (r *Request) Accept(ctx context.Context, o *Options) (*Conn, error) {
	if o == nil {
		o = r.options
	}
	c, _, err := r.accept(o, func() (context.Context, context.CancelFunc) { return ctx, func() {} })
	if err != nil {
		return nil, err
	}
	return c.finishSetup(), nil
}

// accept is Accept without Conn.finishSetup. It calls wait before it waits for the peer, and
// uses the context that wait returns. It reports whether the error is of the peer only.
// An error of Prepare or Setup is not, whatever it matches: they may have other peers. An
// error of Established is, if it says so.
func (r *Request) accept(o *Options, wait func() (context.Context, context.CancelFunc)) (_ *Conn, peer bool, _ error) {
	c := &Conn{id: r.id, peerData: r.PrivateData()}
	fromCaller, err := c.setUp(o)
	var refuseErr error
	if err == nil {
		ctx, cancel := wait()
		if err = c.id.Accept(ctx, c.param(o)); err == nil {
			err = c.established(ctx, o, c.peerData)
			fromCaller = err != nil && !isPeerError(err)
		}
		cancel()
	} else {
		// Not after Accept: the kernel would go on repeating the reply, and the command
		// that closes the id would wait for its last repetition, for more than a minute.
		refuseErr = c.id.refuse(err)
	}
	if err != nil {
		closeErr := joinErrors(c.abandon(), refuseErr)
		return nil, !fromCaller && closeErr == nil && isPeerError(err), joinErrors(err, closeErr)
	}
	return c, false, nil
}

// Reject rejects the connection and sends privateData to the peer. The errors are
// those of [ID.Reject] and [ID.Close].
func (r *Request) Reject(privateData []byte) error {
	return errors.Join(r.id.Reject(privateData), r.id.Close())
}

// Close rejects the connection. The errors are those of [ID.Close].
func (r *Request) Close() error { return r.id.Close() }

var (
	errSlowPeer = errors.New("cm: the peer has not confirmed in time")
	errCrowded  = errors.New("cm: the peer has not confirmed while others wait")
)

// isPeerError reports whether a handshake has failed because of the peer or because
// the listener has ended.
func isPeerError(err error) bool {
	for _, e := range []error{
		ErrRejected, ErrDisconnected, ErrUnreachable, ErrTimeout, errSlowPeer, errCrowded, ErrListenerClosed,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
