package uverbs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/ctxerr"
	"golang.org/x/sys/unix"
)

// handshakeTimeout limits a Handshake whose ctx has no deadline.
const handshakeTimeout = 30 * time.Second

// errHandshakeTimeout is the cause when handshakeTimeout has passed.
var errHandshakeTimeout = newSentinel("uverbs: the peer has not completed the handshake within "+
	handshakeTimeout.String()+": check that its program calls Handshake", unix.ETIMEDOUT)

// Handshake connects the QP to one at the other end of conn, whose program also calls
// Handshake. The two exchange Endpoints and go to RTS. Handshake returns when both are in RTS,
// so that either may send at once. Receives can be posted earlier, after [QP.Init].
//
// Without QPConfig.GID the local address is the best one for the peer's address on conn, or the
// best for any peer if conn uses a network that the device is not part of. Handshake reads no
// more of conn than its own messages. Both ends write first: conn must accept a line before the
// peer reads it, as TCP does.
//
// Handshake returns early when ctx ends, or after 30 seconds if ctx has no deadline.
// Then conn is left with a deadline in the past. After an error the QP is in its previous
// state, or in RESET if the error occurred after a change of state. In RESET, posted receives
// are lost.
//
// The exchange proves only that the peer's program could use conn. GID and QPN are what the
// peer sends: they need not belong to the host at the other end of conn, so a peer can direct
// this QP's packets to another host. RDMA packets are neither encrypted nor authenticated: a
// host that can send in the network and guesses QPN and PSN can forge them. Use a TLS
// connection if peers must be authenticated, and a network in which only trusted hosts can
// send.
//
// Handshake returns [ErrInvalid] for a UD or SRD QP and for a peer that sends another protocol,
// io.ErrUnexpectedEOF if the peer closes conn, the errors of conn, those of the end of ctx, and
// ETIMEDOUT after these 30 seconds; otherwise the errors are those of [QP.Connect].
func (q *QP) Handshake(ctx context.Context, conn net.Conn) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, handshakeTimeout, errHandshakeTimeout)
		defer cancel()
	}
	interrupted := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		interrupted <- conn.SetDeadline(time.Unix(1, 0)) // ends reads and writes in progress
	})
	was := q.State()
	err := q.handshake(conn)
	if !stop() {
		err = joined(ctxerr.Of(ctx), errors.Join(err, <-interrupted))
	}
	if err == nil {
		return nil
	}
	if q.State() != was { // the peer may not be connected, or not to this QP
		err = errors.Join(err, q.Modify(QPAttr{State: StateReset}, MaskState))
	}
	return fmt.Errorf("uverbs: handshake of %v with %v: %w", q, conn.RemoteAddr(), err)
}

// joined returns cause, with the resulting error in parentheses. That of conn's deadline is not matched: a canceled ctx
// sets it too.
func joined(cause, err error) error {
	switch {
	case err == nil:
		return cause
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%w (%v)", cause, err)
	}
	return fmt.Errorf("%w (%w)", cause, err)
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
		err = invalid("connect", q.String(), fmt.Sprintf("the peer sent %q, want %q", line, readyLine))
	}
	return err
}

const (
	helloWord = "goverbs1"
	readyLine = "ready\n"
	// maxLine limits how much is read from a peer that uses another protocol.
	maxLine = 256
)

func parseHello(line string, e *Endpoint) error {
	word, text, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
	if !ok || word != helloWord {
		return invalid("connect", "", fmt.Sprintf("the peer does not use this handshake: it sent %q", line))
	}
	return e.UnmarshalText([]byte(text))
}

// readLine reads a line byte by byte, because the data after it belongs to the caller.
func readLine(r io.Reader) (string, error) {
	line := make([]byte, 0, maxLine)
	for len(line) < maxLine {
		_, err := io.ReadFull(r, line[len(line):len(line)+1])
		if err == io.EOF {
			err = io.ErrUnexpectedEOF // the peer has ended in the middle of the handshake
		}
		if err != nil {
			return "", fmt.Errorf("read from the peer: %w", err)
		}
		line = line[:len(line)+1]
		if line[len(line)-1] == '\n' {
			return string(line), nil
		}
	}
	return "", invalid("connect", "", "the peer does not speak this handshake: it sent no end of line")
}

// peerOf returns the IP address at the other end of conn, or the zero Addr.
func peerOf(conn net.Conn) netip.Addr {
	ap, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}
