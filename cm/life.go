package cm

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// This file has the phases of an id, how the id ends, and how its end affects calls
// that wait.
//
// Locks are acquired in this order. Those on one line are never held together.
//
//	Conn.mu            held while the objects passed to Conn.Own are closed
//	ID.mu              held during commands, possibly for as long as a
//	                   SendBatch of the id's QP is open. A listener's is
//	                   acquired before that of the id of a request.
//	Listener.mu, DeviceList.mu
//	host, pumps
//	ID.to              the destination of the id's events
//	SyncID.mu
//	life.mu, ID.seen, host.table, node.mu, refusals.mu, EventChannel.pendingMu,
//	setupMRs.mu
//
// The goroutines of the pumps, which read events for others, never acquire ID.mu.
// Accessors only acquire ID.seen: the owner of an open SendBatch may call them while
// another goroutine is in the middle of Close or Disconnect.

// A phase is a stage in the life of an id.
type phase uint8

const (
	phaseNew           phase = iota // created by the program or by a connection request, bound, resolved
	phaseListening                  // after Listen
	phaseConnecting                 // after Connect or Accept
	phaseFailed                     // the handshake has failed on this side
	phaseEstablished                // the connection is established
	phaseDisconnecting              // after Disconnect
	phaseEnded                      // the connection ended, the device was removed, or the membership was lost
	phaseClosed                     // after Close
)

// transitions has the phases that may follow each phase.
var transitions = [...][]phase{
	phaseNew:           {phaseListening, phaseConnecting, phaseEstablished, phaseEnded, phaseClosed},
	phaseListening:     {phaseEnded, phaseClosed},
	phaseConnecting:    {phaseConnecting, phaseFailed, phaseEstablished, phaseDisconnecting, phaseEnded, phaseClosed},
	phaseFailed:        {phaseConnecting, phaseEnded, phaseClosed},
	phaseEstablished:   {phaseDisconnecting, phaseEnded, phaseClosed},
	phaseDisconnecting: {phaseEnded, phaseClosed},
	phaseEnded:         {phaseClosed},
	phaseClosed:        {},
}

// A life has the phase of an id, and why the id has ended.
type life struct {
	mu    sync.Mutex
	phase phase
	cause error // in phaseEnded and phaseClosed
}

// enter changes the phase if the transition is allowed. It reports whether it did.
func (l *life) enter(p phase) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.change(p)
}

// change is enter for callers that hold l.mu.
func (l *life) change(p phase) bool {
	if !slices.Contains(transitions[l.phase], p) {
		return false
	}
	l.phase = p
	return true
}

// undo returns to the phase before p after the command of p has failed. It does nothing
// if another phase has followed.
func (l *life) undo(p, before phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == p {
		l.phase = before
	}
}

// end enters phaseEnded or phaseClosed. Only the first cause is kept.
func (l *life) end(p phase, cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.change(p) && l.cause == nil {
		l.cause = cause
	}
}

// add joins the cause with an error that occurred while the id ended.
func (l *life) add(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cause = errors.Join(l.cause, err)
}

func (l *life) now() phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase
}

// over returns why no more events can arrive, or nil if they can.
func (l *life) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// err returns why the id cannot communicate any more, or nil if it can.
func (l *life) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase == phaseDisconnecting {
		return errDisconnecting
	}
	return l.cause
}

// errDisconnecting is the cause until the peer has replied.
var errDisconnecting = &Error{Op: "use", Object: "the connection", Kind: ErrDisconnected, Errno: unix.ECONNRESET,
	Detail: "this side has ended the connection"}

// isClosed reports whether Close has closed the id.
func (i *ID) isClosed() bool { return i.life.now() == phaseClosed }

// Err returns why the id cannot communicate any more, or nil if it can. It returns
// [ErrDisconnected] if either side has ended the connection, [uverbs.ErrDeviceGone] if
// the device was removed, the error of EventMulticastError if the membership in a group
// was lost, and [uverbs.ErrClosed] if none of these happened before Close. On an
// [EventChannel], Err reports the end once Next has returned its event.
func (i *ID) Err() error { return i.life.err() }

// flushedError is the error of a request that was flushed because the connection has
// ended.
type flushedError struct{ end, flush error }

func (e *flushedError) Error() string   { return e.end.Error() + ": the request was flushed" }
func (e *flushedError) Unwrap() []error { return []error{e.end, e.flush} }

// completionError returns the error of a completion. For a flushed request it adds why
// the connection has ended.
func (i *ID) completionError(status uverbs.WCStatus, err error) error {
	if end := i.life.err(); end != nil && status == uverbs.WCWRFlushErr {
		return &flushedError{end: end, flush: err}
	}
	return err
}

// shutSends makes posts of sends return why the connection has ended. It does not
// affect requests that are already posted.
func (i *ID) shutSends() { i.sendQP.Store(nil) }

// endWaits makes SendComp and RecvComp return why the connection has ended once their
// queues are empty.
func (i *ID) endWaits() {
	err := i.life.err()
	if cq := i.ownSendCQ.Load(); cq != nil {
		cq.EndWaits(err)
	}
	// Messages for the SRQ of an XRC id also arrive through the connections of other
	// ids.
	if cq := i.ownRecvCQ.Load(); cq != nil && i.qpType != uverbs.XRCRecv {
		cq.EndWaits(err)
	}
}

// ownCQs reports whether the id has created both queues of its QP. Such queues have
// locks.
func (i *ID) ownCQs() bool { return i.ownSendCQ.Load() != nil && i.ownRecvCQ.Load() != nil }

// drainTime limits how long the end of a connection waits for the device to complete
// the posted requests.
const drainTime = time.Second

// drained ends the waits when the device has completed the requests of a QP in state
// ERR.
func (i *ID) drained(qp *uverbs.QP) {
	if i.ownCQs() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTime)
		defer cancel()
		_ = qp.Drain(ctx) // the QP may be closed by now
	}
	i.endWaits()
}

// disconnecting ends the posts and the waits of a connection that this side ends. The
// QP is in state ERR. The caller holds i.mu.
func (i *ID) disconnecting() {
	i.shutSends()
	if qp := i.qp.Load(); qp != nil && !i.single {
		go i.drained(qp) // drained may wait for an open SendBatch
	} else {
		i.endWaits()
	}
}

// connected reports whether the id has a connection that has not ended.
func (i *ID) connected() bool {
	p := i.life.now()
	return p == phaseEstablished || p == phaseDisconnecting
}

// ended handles the end of an id whose events are read from a channel. It does not
// flush the posted requests: the caller may, or else Disconnect or Close of the program
// does. The caller holds i.mu.
func (i *ID) ended(e *Event) {
	why := e.Err()
	if e.Type != EventDeviceRemoval && e.Type != EventDisconnected {
		// The peer went away before it was notified that the connection is established.
		why = (&Event{Type: EventDisconnected, object: e.object}).Err()
	}
	i.life.end(phaseEnded, why)
	i.shutSends()
	qp := i.qp.Load()
	if e.Type == EventDeviceRemoval || qp == nil || i.single {
		i.endWaits()
		return
	}
	own := i.ownSendCQ.Load() != nil
	go func() { // lastAcks may wait for an open SendBatch
		lastAcks(qp, own, lastMoment)
		i.endWaits()
	}()
}

// lastMoment is how long outstanding sends may wait for their acknowledgements after
// the connection has ended.
const lastMoment = 200 * time.Millisecond

// hangUp handles the end of a synchronous id's connection. It replies to the peer's
// kernel, which waits for the reply, and flushes the QP. Before, outstanding sends have
// up to moment to complete. After a device removal neither the reply nor
// acknowledgements are possible.
func (i *ID) hangUp(t EventType, moment time.Duration) {
	qp := i.answerEnd(t)
	if qp == nil {
		i.endWaits()
		return
	}
	if t == EventDisconnected {
		lastAcks(qp, i.ownSendCQ.Load() != nil, moment)
	}
	if i.flush(t, qp) {
		i.drained(qp)
	}
}

// flush moves the QP to state ERR. It returns false if the id has another QP by now.
func (i *ID) flush(t EventType, qp *uverbs.QP) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.qp.Load() != qp {
		return false
	}
	err := i.modifyQP(toErr, uverbs.MaskState)
	if t == EventDeviceRemoval && errors.Is(err, uverbs.ErrDeviceGone) {
		err = nil // the cause already says so
	}
	if err != nil {
		i.life.add(err)
	}
	return true
}

// answerEnd replies to the peer. It returns the QP to flush, or nil.
func (i *ID) answerEnd(t EventType) *uverbs.QP {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.isClosed() || i.single {
		return nil
	}
	if t == EventDisconnected {
		// The kernel also accepts the reply from the side that ended the connection.
		// EINVAL means that the kernel has already released the connection or, on
		// iWARP, which needs no reply, that it does not know the QP.
		if err := i.node.file.Disconnect(i.kernel); err != nil && !errors.Is(err, unix.EINVAL) {
			i.life.add(wrap("disconnect", i.describe(), err, ""))
		}
	}
	return i.qp.Load()
}

// lastAcks waits until the outstanding sends have completed, but no longer than moment.
// A peer may end the connection as soon as it has received a message. The message of
// the connection manager can then arrive before the acknowledgement, and flushing the
// send would report a message as lost that has arrived. Requests without a completion
// cause no event, so lastAcks polls. Usually there are no outstanding sends, and it
// does not wait.
func lastAcks(qp *uverbs.QP, ownCQ bool, moment time.Duration) {
	const longest = 5 * time.Millisecond
	inFlight := qp.SendsInFlight
	if !ownCQ { // only one goroutine may use the program's queue
		inFlight = qp.SendsOutstanding
	}
	end := time.Now().Add(moment)
	for pause := 50 * time.Microsecond; inFlight() > 0 && time.Now().Before(end); pause = min(2*pause, longest) {
		time.Sleep(pause)
	}
}
