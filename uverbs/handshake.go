package uverbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"
)

// Handshake connects the QP to one at the other end of conn, whose program
// calls Handshake too: they exchange endpoints, go to RTS, and return when both
// have, so that either may send at once. Receives can be posted before, after
// [QP.Init].
//
// Without QPConfig.GID the local address is the one that suits the peer's
// address on conn, or the best for any peer where conn runs in a network that
// the device is not part of. What follows on conn is the caller's. When ctx ends
// the wait for the peer, conn is left with a deadline that has passed. Both ends
// write first: conn must take a line without a reader, as TCP does.
// [ErrInvalid] for a UD QP and for a peer that says something else; else the
// errors are those of [QP.Connect], of conn, and the cause of the end of ctx.
func (q *QP) Handshake(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Unix(1, 0)) // ends reads and writes under way
	})
	err := q.handshake(conn)
	if !stop() { // the deadline was set, or is being
		err = errors.Join(context.Cause(ctx), err)
	}
	if err != nil {
		return fmt.Errorf("uverbs: handshake of %v with %v: %w", q, conn.RemoteAddr(), err)
	}
	return nil
}

func (q *QP) handshake(conn net.Conn) error {
	if err := q.checkConnects(); err != nil {
		return err
	}
	if _, err := q.localGID(peerOf(conn)); err != nil {
		return err
	}
	local, err := q.Endpoint()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "%s %v\n", helloWord, local); err != nil {
		return err
	}
	var remote Endpoint
	line, err := readLine(conn)
	if err != nil {
		return err
	}
	if err := parseHello(line, &remote); err != nil {
		return err
	}
	if err := q.Connect(remote); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, readyLine); err != nil {
		return err
	}
	line, err = readLine(conn)
	if err == nil && line != readyLine {
		err = invalid("connect", q.String(), fmt.Sprintf("the peer said %q where %q was due", line, readyLine))
	}
	return err
}

const (
	helloWord = "goverbs1"
	readyLine = "ready\n"
	// maxLine bounds what a peer that speaks another protocol can make us read.
	maxLine = 256
)

func parseHello(line string, e *Endpoint) error {
	word, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !ok || word != helloWord {
		return invalid("connect", "", fmt.Sprintf("the peer does not speak this handshake: it said %q", line))
	}
	return e.UnmarshalText([]byte(text))
}

// readLine reads a line byte by byte: what follows it is not ours.
func readLine(r io.Reader) (string, error) {
	line := make([]byte, 0, maxLine)
	for len(line) < maxLine {
		if _, err := io.ReadFull(r, line[len(line):len(line)+1]); err != nil {
			return "", fmt.Errorf("the peer left: %w", err)
		}
		line = line[:len(line)+1]
		if line[len(line)-1] == '\n' {
			return string(line), nil
		}
	}
	return "", invalid("connect", "", "the peer does not speak this handshake: it sent no end of line")
}

// peerOf is the IP address at the other end of conn, or the zero Addr.
func peerOf(conn net.Conn) netip.Addr {
	ap, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
