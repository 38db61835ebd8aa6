package main

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

// An address is what one end tells the other about its queue pair.
type address struct {
	lid uint16
	qpn uint32
	psn uint32
	gid uverbs.GID // zero for none
}

func (a address) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN 0x%06x, PSN 0x%06x, GID %v", a.lid, a.qpn, a.psn, a.gid)
}

// recordSize is the length of an address on the TCP connection: lid:qpn:psn:gid
// in hexadecimal digits, and a NUL. The C program reads it by a single read(2),
// so it must go out by a single write.
const recordSize = 4 + 1 + 6 + 1 + 6 + 1 + 32 + 1

// done is the client's word that it has the server's address.
const done = "done\x00"

func (a address) record() []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%x\x00", a.lid, a.qpn, a.psn, a.gid[:])
}

// parseRecord decodes a peer's address.
func parseRecord(b []byte) (a address, err error) {
	bad := func(what string) (address, error) {
		return address{}, fmt.Errorf("the peer's address has no %s: %q; is it an rc_pingpong?", what, b)
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
	if err := a.gid.UnmarshalText(f[3]); err != nil {
		return bad("GID")
	}
	a.lid, a.qpn, a.psn = uint16(lid), uint32(qpn), uint32(psn)
	return a, nil
}

// exchange tells the peer the local address and returns the peer's. The server
// connects its queue pair before it answers, since the client begins to send
// once it has the answer. The connection is closed then.
func (p *pingpong) exchange(ctx context.Context, conn net.Conn) (remote address, err error) {
	stop := context.AfterFunc(ctx, func() { conn.Close() }) // ends reads and writes; the context's error says why
	defer func() {
		if !stop() {
			err = context.Cause(ctx)
			return
		}
		err = errors.Join(err, conn.Close())
	}()
	if p.opt.server() {
		return answer(conn, p.local, p.connect)
	}
	return ask(conn, p.local)
}

// ask is the client's part of the exchange.
func ask(conn io.ReadWriter, local address) (remote address, err error) {
	if _, err := conn.Write(local.record()); err != nil {
		return remote, fmt.Errorf("sending the local address: %w", err)
	}
	if remote, err = readRecord(conn); err != nil {
		return remote, err
	}
	if _, err := io.WriteString(conn, done); err != nil {
		return remote, fmt.Errorf("acknowledging the peer's address: %w", err)
	}
	return remote, nil
}

// answer is the server's part of the exchange.
func answer(conn io.ReadWriter, local address, connect func(address) error) (remote address, err error) {
	if remote, err = readRecord(conn); err != nil {
		return remote, err
	}
	if err := connect(remote); err != nil {
		return remote, err
	}
	if _, err := conn.Write(local.record()); err != nil {
		return remote, fmt.Errorf("sending the local address: %w", err)
	}
	ack := make([]byte, len(done))
	if _, err := io.ReadFull(conn, ack); err != nil {
		return remote, fmt.Errorf("the client did not acknowledge the address; its own output says why: %w", err)
	}
	if string(ack) != done {
		return remote, fmt.Errorf("the client acknowledged with %q; is it an rc_pingpong?", ack)
	}
	return remote, nil
}

func readRecord(r io.Reader) (address, error) {
	b := make([]byte, recordSize)
	if _, err := io.ReadFull(r, b); err != nil {
		return address{}, fmt.Errorf("the peer did not send its address; its own output says why: %w", err)
	}
	return parseRecord(b)
}

// listen makes the server's listener; the client gets none.
func listen(ctx context.Context, opt *options) (net.Listener, error) {
	if !opt.server() {
		return nil, nil
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", opt.tcpPort))
	if errors.Is(err, syscall.EADDRINUSE) {
		err = fmt.Errorf("%w: another server runs there, choose another port by -p at both ends", err)
	}
	if err == nil {
		fmt.Fprintf(os.Stderr, "rcpingpong: listening on %v\n", l.Addr())
	}
	return l, err
}

func dialOrAccept(ctx context.Context, opt *options, l net.Listener) (net.Conn, error) {
	if l == nil {
		return dial(ctx, net.JoinHostPort(opt.host, strconv.Itoa(int(opt.tcpPort))))
	}
	stop := context.AfterFunc(ctx, func() { l.Close() }) // ends Accept
	conn, err := l.Accept()
	if !stop() {
		return nil, context.Cause(ctx)
	}
	return conn, errors.Join(err, l.Close())
}

// A server that is not there yet is waited for, for serverWait.
const (
	serverWait = 10 * time.Second
	retryPause = 50 * time.Millisecond
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

// peerAddr is the IP address of the peer.
func peerAddr(conn net.Conn) netip.Addr {
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}
