package cm

import (
	"context"
	"errors"
	"time"

	"github.com/goverbs/goverbs/internal/verbs"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// This file has what the end of an id does to its QP and to calls that wait.

// flushedError is the error of a request that was flushed because the connection has
// ended.
type flushedError struct{ end, flush error }

func (e *flushedError) Error() string   { return e.end.Error() + ": the request was flushed" }
func (e *flushedError) Unwrap() []error { return []error{e.end, e.flush} }

// errStreamEnded is why iWARP flushes a request: the kernel does so when the TCP connection ends, before the event of
// the end.
var errStreamEnded = &Error{Object: "the connection", Kind: ErrDisconnected, Errno: unix.ECONNRESET,
	Detail: "the stream has ended: the peer has disconnected, or a request has failed before"}

// completionError returns the error of a completion. For a flushed request it adds
// why the connection has ended.
func (id *ID) completionError(cq *uverbs.CQ, status uverbs.WCStatus, err error) error {
	end := id.life.err()
	if end == nil && cq.Context().Device().NodeType == uverbs.NodeRNIC {
		end = errStreamEnded // the event is about to come
	}
	if end != nil && status == uverbs.WCWRFlushErr {
		return &flushedError{end: withOp(opWait, end), flush: err}
	}
	return err
}

// stopSends makes posts of sends return why the connection has ended. It does not
// affect requests that are already posted.
func (id *ID) stopSends() { id.sendQP.Store(nil) }

// endCQWaits makes SendComp and RecvComp return why the connection has ended once
// their queues are empty.
func (id *ID) endCQWaits() { id.setCQWaits(withOp(opWait, id.life.err())) }

// setCQWaits makes SendComp and RecvComp return err once their queues are empty, or wait
// again if err is nil.
func (id *ID) setCQWaits(err error) {
	if cq := id.ownSendCQ.Load(); cq != nil {
		verbs.EndWaits(cq, err)
	}
	if cq := id.endsCQ.Load(); cq != nil {
		verbs.EndWaits(cq, err)
	}
	// Messages for the SRQ of an XRC id also arrive through the connections of other
	// ids.
	if cq := id.ownRecvCQ.Load(); cq != nil && id.qpType != uverbs.XRCRecv {
		verbs.EndWaits(cq, err)
	}
}

// ownCQs reports whether the id has created both queues of its QP. Such queues have
// locks.
func (id *ID) ownCQs() bool { return id.ownSendCQ.Load() != nil && id.ownRecvCQ.Load() != nil }

// drainTime limits how long the end of a connection waits for the device to complete
// the posted requests.
const drainTime = time.Second

// endCQWaitsWithin calls endCQWaits after d, unless stop is called before or the id has
// another QP by then. What precedes endCQWaits at the end of a connection needs the
// send queue, and the goroutine that holds it with a SendBatch may itself wait for a
// completion.
func (id *ID) endCQWaitsWithin(d time.Duration) (stop func() bool) {
	qp := id.qp.Load()
	return time.AfterFunc(d, func() {
		if id.qp.Load() == qp {
			id.endCQWaits()
		}
	}).Stop
}

// drain ends the waits when the device has completed the requests of a QP in state
// ERR.
func (id *ID) drain(qp *uverbs.QP) {
	defer id.endCQWaitsWithin(drainTime)()
	if id.ownCQs() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		_ = qp.Drain(ctx) // the QP may be closed by now
	}
	id.endCQWaits()
}

// stopTraffic ends the posts and the waits of a connection that this side ends. The
// QP is in state ERR. The caller holds id.mu.
func (id *ID) stopTraffic() {
	id.stopSends()
	if qp := id.qp.Load(); qp != nil && !id.singleGoroutine {
		go id.drain(qp) // drain may wait for an open SendBatch
	} else {
		id.endCQWaits()
	}
}

// terminateAsync handles the end of an id whose events are read from a channel. It does
// not flush the posted requests: the caller may, or else Disconnect or Close of the
// program does. The caller holds id.mu.
func (id *ID) terminateAsync(e *Event) {
	if e.Type != EventDeviceRemoval && e.Type != EventDisconnected {
		// The peer went away before it was notified that the connection is
		// established.
		e.err = (&Event{Type: EventDisconnected, subject: e.subject}).Err()
	}
	id.life.end(phaseEnded, e.Err())
	id.stopSends()
	qp := id.qp.Load()
	if e.Type == EventDeviceRemoval || qp == nil || id.singleGoroutine {
		id.endCQWaits()
		return
	}
	own := id.ownSendCQ.Load() != nil
	go func() { // awaitAcks may wait for an open SendBatch
		defer id.endCQWaitsWithin(ackWait + drainTime)()
		awaitAcks(qp, own, ackWait)
		id.endCQWaits()
	}()
}

// ackWait is how long outstanding sends may wait for their acknowledgements after
// the connection has ended.
const ackWait = 200 * time.Millisecond

// completeDisconnect handles the end of a synchronous id's connection. It replies to
// the peer's kernel, which waits for the reply, and flushes the QP. Before,
// outstanding sends have up to limit to complete. After a device removal neither the
// reply nor acknowledgements are possible.
func (id *ID) completeDisconnect(t EventType, limit time.Duration) {
	defer id.endCQWaitsWithin(limit + drainTime)()
	qp := id.replyDisconnect(t)
	if qp == nil {
		id.endCQWaits()
		return
	}
	if t == EventDisconnected {
		awaitAcks(qp, id.ownSendCQ.Load() != nil, limit)
	}
	if id.flush(t, qp) {
		id.drain(qp)
	}
}

// flush moves the QP to state ERR. It returns false if the id has another QP by now.
func (id *ID) flush(t EventType, qp *uverbs.QP) bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp.Load() != qp {
		return false
	}
	err := id.modifyQP(toErr, uverbs.MaskState)
	if t == EventDeviceRemoval && errors.Is(err, uverbs.ErrDeviceGone) {
		err = nil // the cause already says so
	}
	if err != nil {
		id.life.addCause(err)
	}
	return true
}

// replyDisconnect replies to the peer. It returns the QP to flush, or nil.
func (id *ID) replyDisconnect(t EventType) *uverbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.isClosed() || id.singleGoroutine {
		return nil
	}
	if t == EventDisconnected {
		// The kernel also accepts the reply from the side that ended the connection.
		// EINVAL means that the kernel has already released the connection or, on
		// iWARP, which needs no reply, that it does not know the QP.
		if err := id.node.file.Disconnect(id.kernelID); err != nil && !errors.Is(err, unix.EINVAL) {
			id.life.addCause(id.wrap("disconnect", id.describe(), err, ""))
		}
	}
	return id.qp.Load()
}

// awaitAcks waits until the outstanding sends have completed, but no longer than
// limit. A peer may end the connection as soon as it has received a message. The
// message of the connection manager can then arrive before the acknowledgement, and
// flushing the send would report a message as lost that has arrived. Requests
// without a completion cause no event, so awaitAcks polls. Usually there are no
// outstanding sends, and it does not wait.
func awaitAcks(qp *uverbs.QP, ownCQ bool, limit time.Duration) {
	const longest = 5 * time.Millisecond
	inFlight := func() int { return verbs.SendsInFlight(qp) }
	if !ownCQ { // only one goroutine may use the program's queue
		inFlight = qp.SendsOutstanding
	}
	end := time.Now().Add(limit)
	for pause := 50 * time.Microsecond; inFlight() > 0 && time.Now().Before(end); pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}
