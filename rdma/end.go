package rdma

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/goverbs/goverbs/internal/ctxerr"
)

// This file has the end of a connection. A side that closes it sends an end, which is its last SEND, and waits until
// the peer has received what was sent. The peer has everything if it has the end and has read what was offered before.
// After any other end, messages may be missing.

// fail ends the connection because of err. The caller holds c.mu.
func (c *Conn) fail(err error) {
	if c.failure == nil || isConsequence(c.failure) && !isConsequence(err) {
		c.failure = err
	}
	switch {
	case c.err != nil || c.handling: // decide follows
	case c.waiters.Leader() != nil:
		c.waiters.Interrupt(c.waiters.Leader()) // it has what came before, and decides
	default:
		c.decide()
	}
}

// refused is fail for a post that was refused, and returns why the connection has ended. The caller holds c.mu, which
// is released while the leader decides.
func (c *Conn) refused(err error) error {
	c.fail(err)
	for c.err == nil && c.waiters.Leader() != nil {
		c.leaderDone.Wait()
	}
	if c.err != nil {
		return c.err
	}
	return c.cause(err) // the caller handles completions
}

// decide ends the connection because of c.failure. Before, it handles what has arrived: messages, and the end of the
// peer. No other goroutine polls. The caller holds c.mu.
func (c *Conn) decide() {
	if c.err != nil {
		return
	}
	c.harvest()
	if c.err != nil { // by the peer's CloseWithError
		return
	}
	err := c.failure
	// The peer is to know. The kernel does not wait for its reply, and an error means that the
	// connection has ended already.
	c.later(func() { _ = c.cm.ID().ID.Disconnect() })
	switch n := c.unread(); {
	case !c.eof:
		c.end(c.cause(err))
	case n > 0:
		c.end(&broken{&truncated{n, err}})
	default:
		c.end(errPeerClosed)
	}
	if l := c.options.Logger; l != nil && errors.Is(err, ErrProtocol) {
		c.later(func() { l.Warn("rdma: the peer breaks the protocol", "local", c.local, "peer", c.peer, "error", err) })
	}
}

// harvest handles what has completed. No other goroutine polls.
func (c *Conn) harvest() {
	c.handling = true
	for {
		n, err := c.cq.Poll(c.wcs[:])
		if n == 0 || err != nil {
			break
		}
		c.handle(c.wcs[:n])
	}
	c.handling = false
}

// unread returns how many messages and replies the peer has offered that this side waits for and has not read.
func (c *Conn) unread() (n int) {
	for i := range c.count {
		if in := c.arrived[(c.first+i)%len(c.arrived)].large; in != nil && !in.done {
			n++
		}
	}
	for _, k := range c.calls.all {
		if k.waiting && k.replied && k.m.large != nil && !k.m.large.done {
			n++
		}
	}
	return n
}

// peerEnd returns what calls return after the end of the peer while the connection has not ended.
func (c *Conn) peerEnd() error {
	if c.unread() > 0 {
		return errPeerCloses
	}
	return errPeerClosed
}

// cause returns the cause of the end for an error of a completion or of a call.
func (c *Conn) cause(err error) error {
	end := c.cm.Err()
	switch {
	case errors.Is(err, net.ErrClosed) || errors.Is(err, io.ErrUnexpectedEOF) && errors.Is(err, ErrDisconnected):
		return err
	case end != nil && isConsequence(err):
		err = end
	}
	return &broken{err}
}

// end sets why the connection has ended, and wakes the callers. The caller holds c.mu.
func (c *Conn) end(err error) {
	c.err = err
	if c.keepAlive != nil {
		c.keepAlive.Stop()
	}
	if c.idleTimer != nil {
		c.idleTimer.Stop()
	}
	c.endCalls()
	c.endContexts(err)
	c.waiters.WakeAll()
	if c.handshaking {
		return
	}
	if l := c.options.Logger; l != nil {
		c.later(func() { l.Debug("rdma: connection ended", "local", c.local, "peer", c.peer, "error", err) })
	}
	if t := c.options.Trace; t != nil && t.Ended != nil {
		c.later(func() { t.Ended(c, err) })
	}
}

// endedBy handles the end of the peer.
func (c *Conn) endedBy(body []byte) error {
	if c.eof {
		return fmt.Errorf("%w: a second end", ErrProtocol)
	}
	outstanding := c.messages.most - c.messages.credits
	f, err := parseFarewell(body, outstanding)
	if err != nil {
		return err
	}
	c.eof, c.unreceived = true, max(outstanding-f.held-max(c.callsOut()-f.calls, 0), 0)
	c.endVainFlush()
	if f.reason != nil && c.err == nil && !c.closing {
		c.end(f.reason)
		return nil
	}
	c.endCalls()
	c.endContexts(c.peerEnd())
	c.waiters.WakeAll()
	return nil
}

// farewell returns the body of this side's end.
func (c *Conn) farewell() []byte {
	m := &c.messages
	f := farewell{held: m.receives + m.withheld - m.granted - m.owed - c.count, calls: c.callsIn(), reason: c.reason}
	return f.appendTo(make([]byte, 0, inlineSize))
}

// closeError returns the error of calls after Close.
func (c *Conn) closeError() error {
	if c.reason != nil {
		return c.reason
	}
	return net.ErrClosed
}

// Close ends the connection and releases its resources. Before, it waits until the peer has received
// what was sent, for up to Options.Linger: until short messages have arrived, and the peer has read those that are
// longer than its Options.EagerSize. It does not wait until the peer's program receives short messages: only a reply
// says that a message has been processed.
//
// Close returns [ErrUndelivered], with the number of messages, if the peer has not received all within this time, if
// the connection had ended before, or if the peer has closed it without receiving them. Other calls return
// net.ErrClosed at once. Messages of the peer that have not been received are lost, and the peer's Close says so. Close
// is idempotent: further calls return nil, or try again to release what an earlier call could not release.
func (c *Conn) Close() error {
	d := c.options.Linger
	cause := fmt.Errorf("the peer has not received them within %v: set Options.Linger to more, or call Shutdown (%w)", d,
		context.DeadlineExceeded)
	ctx, cancel := context.WithTimeoutCause(context.Background(), d, cause)
	defer cancel()
	flushed, err := c.shutdown(ctx, nil)
	if !errors.Is(flushed, ErrUndelivered) {
		flushed = nil
	}
	return errors.Join(flushed, err)
}

// CloseWithError ends the connection with a reason: the peer's calls return a [*CloseError] with code and text, and so
// do those of this side. What text has beyond 94 bytes may be left out. CloseWithError waits for up to Options.Linger
// until the reason and short messages have arrived, but not until the peer has read longer messages, which are lost.
// It returns an error if the reason may not have arrived, unless the peer has closed the connection before.
func (c *Conn) CloseWithError(code uint64, text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), c.options.Linger)
	defer cancel()
	flushed, err := c.shutdown(ctx, &CloseError{Code: code, Text: c.closeText(text)})
	return errors.Join(flushed, err)
}

// abort ends the connection without the end that says that the peer has everything.
func (c *Conn) abort() {
	c.mu.Lock()
	defer c.unlock()
	c.fail(errAborted)
}

var errAborted = fmt.Errorf("%w: its handler has panicked", net.ErrClosed)

// closeText returns the part of text that a farewell has room for.
func (c *Conn) closeText(text string) string {
	return cutText(text, min(maxCloseText, c.inline-farewellLen))
}

// Shutdown is Close, but waits until ctx ends instead of for Options.Linger. Its error also matches
// context.Cause(ctx) if ctx ends before the peer has received everything, and why the connection has ended
// if it ended before. The connection is closed in any case. If several calls of Shutdown and Close wait, the first
// whose context ends ends the wait of all, and all return the same errors of it.
func (c *Conn) Shutdown(ctx context.Context) error {
	flushed, err := c.shutdown(ctx, nil)
	return errors.Join(flushed, err)
}

// shutdown closes the connection. flushed is why the peer may not have received everything, and err has the errors of
// releasing resources.
func (c *Conn) shutdown(ctx context.Context, reason *CloseError) (flushed, err error) {
	c.mu.Lock()
	if c.closing {
		return c.joinShutdown(ctx), c.releaseAgain()
	}
	defer close(c.done)
	flushed = c.endWith(ctx, reason)
	return flushed, c.release()
}

// endWith ends a connection that no other call closes, without releasing its resources. It returns why the peer may not
// have received everything. The caller holds c.mu, which endWith releases.
func (c *Conn) endWith(ctx context.Context, reason *CloseError) error {
	c.closing, c.reason = true, reason
	c.endContexts(c.closeError())
	ctx, c.endFlush = context.WithCancelCause(ctx)
	defer c.endFlush(nil)
	c.dismiss()
	go c.watchFlush(ctx)
	flushed := c.flush(ctx)
	c.flushed = flushed
	if c.err == nil {
		c.end(c.closeError())
	}
	c.dismiss()
	c.unlock()
	// The QP stops first: to the peer, a window that is closed while the QP works is an access that was not permitted.
	// An error means that the connection has ended already.
	_ = c.cm.ID().ID.Disconnect()
	return flushed
}

// release releases the resources of a connection that is being closed.
func (c *Conn) release() error {
	err := c.cm.Close()
	c.mu.Lock()
	c.unreleased = err != nil
	c.mu.Unlock()
	if err == nil && c.closed != nil {
		c.closed()
	}
	return err
}

// releaseAgain is release for further calls of Close, after one whose release has failed. They try one after the other.
func (c *Conn) releaseAgain() error {
	c.releasing.Lock()
	defer c.releasing.Unlock()
	if !c.isUnreleased() {
		return nil
	}
	return c.release()
}

// isUnreleased reports whether the latest release has failed.
func (c *Conn) isUnreleased() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unreleased
}

// watchFlush ends the flush of a connection that the peer has disconnected.
func (c *Conn) watchFlush(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.cm.Disconnected():
		c.mu.Lock()
		defer c.mu.Unlock()
		c.endVainFlush()
	}
}

// endVainFlush ends the flush if the peer has sent its end, which says what it has received, and has disconnected. It
// acknowledges nothing any more, and package cm would wait for that. The caller holds c.mu.
func (c *Conn) endVainFlush() {
	if !c.closing || !c.eof {
		return
	}
	select {
	case <-c.cm.Disconnected():
		c.endFlush(errPeerClosed)
	default:
	}
}

// joinShutdown waits until another call of shutdown has ended, and returns what that has not delivered. It releases
// c.mu.
func (c *Conn) joinShutdown(ctx context.Context) error {
	endFlush := c.endFlush
	c.unlock()
	select {
	case <-c.done:
		return nil
	default:
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		endFlush(ctxerr.Of(ctx))
		<-c.done
	}
	return c.flushed
}

// flush sends the end and waits until everything has arrived. It returns why something may not have. The caller holds
// c.mu.
func (c *Conn) flush(ctx context.Context) error {
	err := c.waitFlushed(ctx)
	if err == nil && !c.eof {
		return nil
	}
	if c.failure == nil { // completions may say that it has arrived
		c.failure = err
		c.harvest()
	}
	n := c.undelivered()
	if n != (tally{}) {
		if err == nil {
			err = errNotReceived
		}
		err = &undelivered{n, err}
	}
	if err == nil {
		return nil
	}
	return c.opError("close", err)
}

var errNotReceived = errors.New("the peer has closed the connection without receiving them")

// waitFlushed sends the end and waits until everything has arrived, until the connection has ended, or until ctx ends.
// It also sends the end to a peer that has closed the connection: the peer may wait for acknowledgements that were
// lost, and knows from the end what has arrived. Errors do not matter then, since the peer's end says what it has
// received.
func (c *Conn) waitFlushed(ctx context.Context) error {
	err := c.sendEnd(ctx)
	if c.eof {
		return nil
	}
	return err
}

func (c *Conn) sendEnd(ctx context.Context) error {
	for ended := false; c.err == nil; {
		if !ended && c.space() > 0 {
			if err := c.postControl(kindEnd, 0, c.farewell(), true); err != nil {
				return c.refused(err)
			}
			ended = true
		}
		if ended && c.head == c.tail && (c.offered() == 0 || c.reason != nil || c.eof) {
			return nil
		}
		if err := c.step(ctx, needOwn, nil); err != nil {
			return err
		}
	}
	return c.err
}

// undelivered returns what was sent and may not have been delivered.
func (c *Conn) undelivered() tally {
	if c.eof {
		return tally{messages: c.unreceived}
	}
	n := c.failed
	for i := c.head; i != c.tail; i++ {
		if k := c.requests[i&uint64(len(c.requests)-1)].carries; k > 0 {
			n.add(kind(k - 1))
		}
	}
	for i := range c.windows {
		if c.windows[i].state == windowOffered {
			n.add(c.windows[i].carries)
		}
	}
	// The peer's program has received what there is a credit for again, whatever is known of the requests.
	n.messages = min(n.messages, c.messages.most-c.messages.credits)
	return n
}
