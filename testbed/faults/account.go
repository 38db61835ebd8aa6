package faults

import (
	"errors"
	"fmt"
)

// An Account holds one end's counts of its messages and requests. A session is a
// connection. Messages of a broken session are sent again in the next one.
type Account struct {
	Peers     int // processes with which messages were exchanged
	Sessions  int // established connections
	Refused   int // failed attempts to connect
	Broken    int // sessions that ended before both ends had finished
	Recovered int // sessions that continued after a broken one

	// Requests of the send queue. Each posted request ends as one of the other three.
	Posted     int
	Completed  int
	Failed     int // reported by a completion
	Unreported int // without a completion when the QP was destroyed
	Unflushed  int // receives without a completion, although the QP was in ERR

	Sent       int // SENDs that completed
	Resent     int // SENDs that were posted again in another session
	Received   int // messages that arrived intact and in order
	Rounds     int // WRITEs that were read back intact
	Duplicates int // messages that arrived twice
	Lost       int // messages whose SEND completed, but that the peer does not have
	Corrupt    int // messages with a wrong checksum

	Statuses map[string]int // of failed requests
	Stalls   int            // times that outstanding requests did not complete for too long
	Forced   int            // requests that failed only when the QP was moved to ERR
	QuietMS  int64          // the longest time without a completion, with requests outstanding
	GCs      uint32         // garbage collections
	Seconds  float64        // from the start of the first session to the end of the last one
	Error    string         // the reason for ending early
}

// Check returns an error for results that no fault excuses.
func (a *Account) Check() error {
	var errs []error
	for _, n := range []struct {
		what  string
		count int
	}{
		{"requests were never reported", a.Unreported}, {"receives were never flushed", a.Unflushed},
		{"messages were duplicated", a.Duplicates},
		{"messages were lost silently", a.Lost}, {"messages were corrupt", a.Corrupt},
	} {
		if n.count != 0 {
			errs = append(errs, fmt.Errorf("%d %s", n.count, n.what))
		}
	}
	if a.Posted != a.Completed+a.Failed+a.Unreported {
		errs = append(errs, fmt.Errorf("%d requests, but %d completed and %d failed", a.Posted, a.Completed, a.Failed))
	}
	if a.Error != "" {
		errs = append(errs, errors.New(a.Error))
	}
	return errors.Join(errs...)
}

// An Event is a line that command peer prints. The last one has the Account.
type Event struct {
	Event   string
	Text    string   `json:",omitempty"`
	Account *Account `json:",omitempty"`
}

// The events.
const (
	Listening = "listening"
	Connected = "connected"
	Quiet     = "quiet" // no completion for a while
	Awake     = "awake" // the first completion after it
	Broken    = "broken"
	Refused   = "refused" // an attempt to connect failed
	Wrong     = "wrong"   // a message is corrupt, or out of order
	Over      = "over"    // both ends have finished
	Final     = "account"
)
