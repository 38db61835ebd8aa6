package cm

import (
	"errors"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// This file has the phases of an id and the order of the locks. The end of an id is in
// end.go.
//
// Locks are acquired in this order. Those of one level are never held together.
//
//	1 ID.mu: commands and the id's objects. It is held during commands, possibly for
//	  as long as a SendBatch of the id's QP is open. A listener's is acquired before
//	  the one of a request's id.
//	2 handshakes.mu (of a Listener), DeviceList.mu
//	3 host, pumps
//	4 ID.dest: the destination of the id's events
//	5 SyncID.mu
//	6 life.mu: the phase of an id and its cause
//	  ID.attrMu, host.table, node.mu, rejectQueue.mu, EventChannel.pendingMu,
//	  setupMRs.mu, Conn.mu
//
// The goroutines of the pumps, which read events for others, never acquire ID.mu.
// Accessors only acquire ID.attrMu: the owner of an open SendBatch may call them
// while another goroutine is in the middle of Close or Disconnect.

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
	return l.enterLocked(p)
}

// enterLocked is enter for callers that hold l.mu.
func (l *life) enterLocked(p phase) bool {
	if !slices.Contains(transitions[l.phase], p) {
		return false
	}
	l.phase = p
	return true
}

// revert returns to the phase before p after the command of p has failed. It does
// nothing if another phase has followed.
func (l *life) revert(p, before phase) {
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
	if l.enterLocked(p) && l.cause == nil {
		l.cause = cause
	}
}

// addCause joins the cause with an error that occurred while the id ended.
func (l *life) addCause(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cause = errors.Join(l.cause, err)
}

func (l *life) current() phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.phase
}

// endCause returns why the id has ended, or nil if it has not.
func (l *life) endCause() error {
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
var errDisconnecting = &Error{Object: "the connection", Kind: ErrDisconnected, Errno: unix.ECONNRESET,
	Detail: "this side has ended it"}
