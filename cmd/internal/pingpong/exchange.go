package pingpong

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// An Address is the address of a QP, as the two ends exchange it.
type Address struct {
	LID uint16
	QPN uint32
	PSN uint32
	GID uverbs.GID // zero for none
}

func (a Address) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", a.LID, a.QPN, a.PSN, a.GID)
}

// recordSize is the length of an address on the TCP connection: lid:qpn:psn:gid
// in hexadecimal digits, and a NUL. Most C programs read it with a single read(2),
// so it must be sent with a single write.
const recordSize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1

// done is the client's acknowledgement of the server's address.
const done = "done\x00"

func (a Address) record() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", a.LID, a.QPN, a.PSN, a.GID[:])
}

// parseRecord parses the peer's address.
func parseRecord(b []byte) (a Address, err error) {
	bad := func(missing string) (Address, error) {
		return Address{}, fmt.Errorf("the peer's address has no %s: %q; does it run the same program?", missing, b)
	}
	if len(b) != recordSize || b[recordSize-1] != 0 {
		return bad("closing NUL after 51 characters")
	}
	f := bytes.Split(b[:recordSize-1], []byte{':'})
	if len(f) != 4 || len(f[0]) != 4 || len(f[1]) != 6 || len(f[2]) != 6 {
		return bad("form lid:qpn:psn:gid")
	}
	lid, err := strconv.ParseUint(string(f[0]), 16, 16)
	if err != nil {
		return bad("LID")
	}
	qpn, err := strconv.ParseUint(string(f[1]), 16, 24)
	if err != nil {
		return bad("queue pair number")
	}
	psn, err := strconv.ParseUint(string(f[2]), 16, 24)
	if err != nil {
		return bad("PSN")
	}
	if err := a.GID.UnmarshalText(f[3]); err != nil {
		return bad("GID")
	}
	a.LID, a.QPN, a.PSN = uint16(lid), uint32(qpn), uint32(psn)
	return a, nil
}

// exchange sends the local addresses to the peer, returns the peer's, and closes
// conn. The server connects its QPs before it replies, because the client starts
// to send when it has the reply.
func exchange(ctx context.Context, conn net.Conn, server bool, local []Address,
	connect func([]Address) error) (remote []Address, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, idleTimeout, errIdle)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // interrupts reads and writes
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
			return
		}
		err = errors.Join(err, conn.Close())
	}()
	if server {
		return exchangeServer(conn, local, connect)
	}
	return exchangeClient(conn, local)
}

// exchangeClient is the client's part of exchange.
func exchangeClient(conn io.ReadWriter, local []Address) (remote []Address, err error) {
	if err := writeRecords(conn, local); err != nil {
		return nil, err
	}
	if remote, err = readRecords(conn, len(local)); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, done); err != nil {
		return nil, fmt.Errorf("acknowledging the peer's address: %w", err)
	}
	return remote, nil
}

// exchangeServer is the server's part of exchange.
func exchangeServer(conn io.ReadWriter, local []Address, connect func([]Address) error) (remote []Address, err error) {
	if remote, err = readRecords(conn, len(local)); err != nil {
		return nil, err
	}
	if err := connect(remote); err != nil {
		return nil, err
	}
	if err := writeRecords(conn, local); err != nil {
		return nil, err
	}
	ack := make([]byte, len(done))
	if _, err := io.ReadFull(conn, ack); err != nil {
		return nil, fmt.Errorf("the client did not acknowledge the address; see its output for the reason: %w", err)
	}
	if string(ack) != done {
		return nil, fmt.Errorf("the client acknowledged with %q; does it run the same program?", ack)
	}
	return remote, nil
}

func writeRecords(w io.Writer, all []Address) error {
	var b []byte
	for _, a := range all {
		b = append(b, a.record()...)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("sending the local address: %w", err)
	}
	return nil
}

func readRecords(r io.Reader, n int) ([]Address, error) {
	all := make([]Address, n)
	b := make([]byte, recordSize)
	for i := range all {
		if _, err := io.ReadFull(r, b); err != nil {
			return nil, fmt.Errorf("the peer did not send its address; see its output for the reason: %w", err)
		}
		var err error
		if all[i], err = parseRecord(b); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// listen returns the server's listener, or nil on the client.
func listen(ctx context.Context, opt *Options) (net.Listener, error) {
	if !opt.server() {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", opt.TCPPort))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: another server uses the port, choose another one with -p at both ends", err)
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "%s: listening on %v\n", opt.Name, l.Addr())
	}
	return l, err
}

func dialOrAccept(ctx context.Context, opt *Options, l net.Listener) (net.Conn, error) {
	if l == nil {
		return dial(ctx, net.JoinHostPort(opt.Host, strconv.Itoa(int(opt.TCPPort))))
	}
	stop := context.AfterFunc(ctx, func() { l.Close() }) // interrupts Accept
	conn, err := l.Accept()
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return conn, errors.Join(err, l.Close())
}

const (
	serverWait = 10 * time.Second      // how long the client tries to reach the server
	retryPause = 50 * time.Millisecond // between two attempts
)

func dial(ctx context.Context, target string) (net.Conn, error) {
	var d net.Dialer
	limit := time.After(serverWait)
	for {
		conn, err := d.DialContext(ctx, "tcp", target)
		if err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-limit:
			return nil, fmt.Errorf("%w: start the server there first, with the same -p", err)
		case <-time.After(retryPause):
		}
	}
}

// peerAddr returns the IP address of the peer.
func peerAddr(conn net.Conn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
