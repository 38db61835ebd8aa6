package faults

import (
	"errors"
	"fmt"
)

// An Account is what one end has to say of its messages. A session is a
// connection; messages whose session broke go again in the next one.
type Account struct {
	Peers     int // processes that were talked to
	Sessions  int // connections that stood
	Refused   int // attempts that came to nothing
	Broken    int // sessions that ended before both were done
	Recovered int // sessions that went on after a broken one

	// Requests of the send queue. Each is in the end one of the other three.
	Posted     int
	Completed  int
	Failed     int // reported by a completion
	Unreported int // the QP was destroyed, and no completion had come
	Unflushed  int // receives of which no completion told, though the QP was in ERR

	Sent       int // SENDs that completed
	Resent     int // SENDs that went again, in another session
	Received   int // messages that came intact, and in their order
	Rounds     int // WRITEs that were read back intact
	Duplicates int // messages that came twice
	Lost       int // messages whose SEND completed, and that the peer does not have
	Corrupt    int // messages with a wrong checksum

	Statuses map[string]int // of failed requests
	Stalls   int            // times that requests were out, and none ended for too long
	Forced   int            // requests that failed only when the QP was moved to ERR
	QuietMS  int64          // the longest time without a completion, while requests were out
	GCs      uint32         // collections of the garbage collector
	Seconds  float64        // from the first session's begin to the last one's end
	Error    string         // why it ended early
}

// Check tells what no fault excuses.
func (a *Account) Check() error {
	var errs []error
	for _, n := range []struct {
		what  string
		count int
	}{
		{"requests were never reported", a.Unreported}, {"receives were never flushed", a.Unflushed},
		{"messages came twice", a.Duplicates},
		{"messages were lost silently", a.Lost}, {"messages were corrupt", a.Corrupt},
	} {
		if n.count != 0 {
			errs = append(errs, fmt.Errorf("%d %s", n.count, n.what))
		}
	}
	if a.Posted != a.Completed+a.Failed+a.Unreported {
		errs = append(errs, fmt.Errorf("of %d requests %d completed and %d failed", a.Posted, a.Completed, a.Failed))
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
	Refused   = "refused" // an attempt to connect came to nothing
	Wrong     = "wrong"   // a message is not what was sent, or not where it belongs
	Over      = "over"    // both ends are done
	Final     = "account"
)
