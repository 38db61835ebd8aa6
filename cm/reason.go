package cm

import (
	"errors"
	"fmt"
	"strings"
)

// A server that refuses a request sends the reason in the private data of its
// rejection, of which there are at most 148 bytes, 136 for UD:
//
//	magic    4 bytes  "gvRJ"
//	version  1 byte   refusalVersion
//	code     1 byte   see refusals
//	length   1 byte   of the text
//	reserved 1 byte   0
//	text     at most maxRefusalText bytes of printable ASCII
//
// Later versions may add data behind the text, and codes. A client that does not know
// the code ignores the reason. To a C program it is an ordinary rejection with private
// data.
const (
	refusalMagic   = "gvRJ"
	refusalVersion = 1
	refusalHeader  = len(refusalMagic) + 4
	maxRefusalText = 100
)

// refusals has the errors of refused requests, by their codes. Never change a code.
var refusals = [...]error{
	1: ErrServerBusy,
	2: ErrServerLimit,
	3: ErrVersion,
	4: ErrUnauthenticated,
	5: ErrProtocol,
}

// connLimitError is the error of a client that exceeds MaxConns or MaxConnsPerPeer.
func connLimitError(err error) error { return fmt.Errorf("%w: connections: %w", ErrServerLimit, err) }

// backlogError is the error of a client whose request exceeds the backlog.
func backlogError(backlog int) error {
	return fmt.Errorf("%w: %d requests wait, which is the listener's backlog", ErrServerBusy, backlog)
}

// refusalOf returns the private data of a rejection because of err. It returns nil if err
// matches none of refusals.
func refusalOf(err error) []byte {
	for code, reason := range refusals {
		if reason != nil && errors.Is(err, reason) {
			text := printable(detailOf(err, reason))
			data := append([]byte(refusalMagic), refusalVersion, byte(code), byte(len(text)), 0)
			return append(data, text...)
		}
	}
	return nil
}

// detailOf returns what the text of err adds to the text of reason, which the client knows.
func detailOf(err, reason error) string {
	text, known := err.Error(), kindText(reason)
	if _, detail, found := strings.Cut(text, known); found {
		return strings.TrimPrefix(detail, ": ")
	}
	return strings.TrimPrefix(text, "cm: ")
}

// parseRefusal returns the reason in the private data of a rejection, which is padded
// with zeros, and the server's text. The peer may have sent anything. The error is nil if
// there is no reason that is known.
func parseRefusal(data []byte) (reason error, text string) {
	if len(data) < refusalHeader || string(data[:len(refusalMagic)]) != refusalMagic {
		return nil, ""
	}
	header, rest := data[len(refusalMagic):refusalHeader], data[refusalHeader:]
	version, code, length := header[0], int(header[1]), int(header[2])
	if version < refusalVersion || code >= len(refusals) || refusals[code] == nil {
		return nil, ""
	}
	return refusals[code], printable(string(rest[:min(length, len(rest))]))
}

// printable returns the beginning of s, with a question mark for each byte that is not
// printable ASCII.
func printable(s string) string {
	b := []byte(s[:min(len(s), maxRefusalText)])
	for k := range b {
		if b[k] < ' ' || b[k] > '~' {
			b[k] = '?'
		}
	}
	return string(b)
}
