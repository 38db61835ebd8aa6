package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

const (
	big     = 1 << 20
	message = 256
	pings   = 1000
	pingLen = 64
)

// An end is one side of the connection, with its objects.
type end struct {
	name string
	dev  *uverbs.Context
	scq  *uverbs.CQ // completions of sends
	rcq  *uverbs.CQ // completions of receives
	qp   *uverbs.QP
	msg  *uverbs.MR // a message to send, then one to receive
	mem  *uverbs.MR // the target of WRITE and READ
}

// A window describes the memory that the peer may write and read.
type window struct {
	Addr uint64
	RKey uint32
	Len  int
}

func newEnd(ctx context.Context, who string, conn net.Conn) (*end, error) {
	dev, err := uverbs.Open("")
	if err != nil {
		return nil, err
	}
	e := &end{name: who, dev: dev}
	if err := e.connect(ctx, conn); err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	printLine("[%s, process %d] QP %d is connected", who, os.Getpid(), e.qp.QPN())
	return e, nil
}

func (e *end) connect(ctx context.Context, conn net.Conn) error {
	pd, err := e.dev.AllocPD()
	if err != nil {
		return err
	}
	if e.msg, err = pd.Alloc(2*message, uverbs.LocalWrite); err != nil {
		return err
	}
	if e.mem, err = pd.Alloc(big, uverbs.LocalWrite|uverbs.RemoteWrite|uverbs.RemoteRead); err != nil {
		return err
	}
	if e.scq, err = e.dev.CreateCQ(uverbs.CQConfig{Entries: 16}); err != nil {
		return err
	}
	if e.rcq, err = e.dev.CreateCQ(uverbs.CQConfig{Entries: 16}); err != nil {
		return err
	}
	e.qp, err = pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: e.scq, RecvCQ: e.rcq, MaxSendWR: 4, MaxRecvWR: 4,
		Access: uverbs.RemoteWrite | uverbs.RemoteRead})
	if err != nil {
		return err
	}
	if err := e.qp.Init(); err != nil {
		return err
	}
	if err := e.expect(); err != nil {
		return err
	}
	return e.qp.Handshake(ctx, conn)
}

// expect posts the receive for the peer's next message.
func (e *end) expect() error {
	_, err := e.qp.PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{e.msg.SGE(message, message)}})
	return err
}

// do posts a request and waits for its completion.
func (e *end) do(ctx context.Context, wr uverbs.SendWR) error {
	wr.Flags |= uverbs.Signaled
	if _, err := e.qp.PostSend(wr); err != nil {
		return err
	}
	_, err := completion(ctx, e.scq)
	return err
}

func (e *end) send(ctx context.Context, b []byte) error {
	n := copy(e.msg.Bytes()[:message], b)
	return e.do(ctx, uverbs.SendWR{Opcode: uverbs.OpSend, SGL: []uverbs.SGE{e.msg.SGE(0, n)}})
}

// receive waits for the peer's message and posts the next receive.
func (e *end) receive(ctx context.Context) ([]byte, error) {
	wc, err := completion(ctx, e.rcq)
	if err != nil {
		return nil, err
	}
	b := slices.Clone(e.msg.Bytes()[message:][:wc.ByteLen])
	return b, e.expect()
}

// completion waits for the next completion of cq.
func completion(ctx context.Context, cq *uverbs.CQ) (uverbs.WC, error) {
	var wcs [1]uverbs.WC
	if _, err := cq.PollWait(ctx, wcs[:]); err != nil {
		return wcs[0], err
	}
	return wcs[0], wcs[0].Err()
}

func serve() error {
	ctx := context.Background()
	l, err := net.Listen("tcp", net.JoinHostPort(address, port))
	if err != nil {
		return err
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	e, err := newEnd(ctx, "server", conn)
	if err != nil {
		return err
	}
	defer e.dev.Close()
	return e.serve(ctx, conn)
}

// serve is the server's part: it sends its window and echoes messages.
func (e *end) serve(ctx context.Context, conn net.Conn) error {
	greeting, err := e.receive(ctx)
	if err != nil {
		return err
	}
	printLine("[server] SEND brought %d bytes: %q", len(greeting), greeting)
	where, err := json.Marshal(window{e.mem.Addr(), e.mem.RKey(), e.mem.Len()})
	if err != nil {
		return err
	}
	if err := e.send(ctx, where); err != nil {
		return err
	}
	for range pings {
		b, err := e.receive(ctx)
		if err != nil {
			return err
		}
		if err := e.send(ctx, b); err != nil {
			return err
		}
	}
	printLine("[server] its memory holds CRC %#08x, and its processor had no part in that",
		crc32.ChecksumIEEE(e.mem.Bytes()))
	return waitPeer(conn)
}

func call() error {
	ctx := context.Background()
	conn, err := dial(ctx)
	if err != nil {
		return err
	}
	e, err := newEnd(ctx, "client", conn)
	if err != nil {
		return err
	}
	defer e.dev.Close()
	if err := e.call(ctx); err != nil {
		return err
	}
	return waitPeer(conn)
}

// dial connects to the server, and waits until it listens.
func dial(ctx context.Context) (net.Conn, error) {
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(address, port))
		if !errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline) {
			return conn, err
		}
	}
}

// call is the client's part: a message, a WRITE and a READ, round trips.
func (e *end) call(ctx context.Context) error {
	if err := e.send(ctx, []byte("hello from a Go program without a line of C")); err != nil {
		return err
	}
	b, err := e.receive(ctx)
	if err != nil {
		return err
	}
	var w window
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	printLine("[client] the server offers %d bytes at %#x", w.Len, w.Addr)
	for i := range e.mem.Bytes() {
		e.mem.Bytes()[i] = byte(i) ^ byte(i>>8)
	}
	sent := crc32.ChecksumIEEE(e.mem.Bytes())
	if err := e.do(ctx, uverbs.SendWR{Opcode: uverbs.OpWrite, SGL: []uverbs.SGE{e.mem.SGE(0, w.Len)}, RemoteAddr: w.Addr,
		RKey: w.RKey}); err != nil {
		return err
	}
	printLine("[client] WRITE put %d bytes there, CRC %#08x", w.Len, sent)
	clear(e.mem.Bytes())
	if err := e.do(ctx, uverbs.SendWR{Opcode: uverbs.OpRead, SGL: []uverbs.SGE{e.mem.SGE(0, w.Len)}, RemoteAddr: w.Addr,
		RKey: w.RKey}); err != nil {
		return err
	}
	got := crc32.ChecksumIEEE(e.mem.Bytes())
	printLine("[client] READ fetched them back, CRC %#08x", got)
	if got != sent {
		return errors.New("READ returned other bytes than WRITE wrote")
	}
	return e.pingPong(ctx)
}

func (e *end) pingPong(ctx context.Context) error {
	ping := make([]byte, pingLen)
	start := time.Now()
	for i := range pings {
		for j := range ping {
			ping[j] = byte(i + j)
		}
		if err := e.send(ctx, ping); err != nil {
			return err
		}
		pong, err := e.receive(ctx)
		if err != nil {
			return err
		}
		if !bytes.Equal(ping, pong) {
			return fmt.Errorf("round trip %d returned other bytes", i)
		}
	}
	each := time.Since(start) / pings
	printLine("[client] %d round trips of %d bytes, sleeping for each completion: %v each (an emulated processor:"+
		" no measure of speed)", pings, pingLen, each.Round(time.Microsecond))
	return nil
}

// waitPeer waits until the peer has finished too, because its last message may still
// need an acknowledgement from this end's QP.
func waitPeer(conn net.Conn) error {
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	if err == nil {
		return errors.New("the peer sent data after its last message")
	}
	return conn.Close()
}
