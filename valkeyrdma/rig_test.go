package valkeyrdma_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/valkeyrdma"
	"github.com/goverbs/goverbs/verbstest"
)

var (
	check   = errtest.Check
	isError = errtest.Is
)

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// A pair is two machines.
type pair struct {
	network     *verbstest.Network
	here, there *verbstest.Machine
}

func machines(t testing.TB) pair {
	n := verbstest.NewNetwork(t)
	return pair{n, n.Machine(), n.Machine()}
}

func (p pair) addr() string { return p.there.AddrPort(6379).String() }

// connect returns both ends of a connection.
func connect(t testing.TB, config valkeyrdma.Config) (client, server net.Conn) {
	t.Helper()
	return machines(t).connect(t, config)
}

func (p pair) connect(t testing.TB, config valkeyrdma.Config) (client, server net.Conn) {
	t.Helper()
	var l *valkeyrdma.Listener
	lc := &valkeyrdma.ListenConfig{Config: config}
	p.there.Run(func() { l = must(lc.Listen(":6379"))(t) })
	d := &valkeyrdma.Dialer{Config: config}
	p.here.Run(func() { client = must(d.DialContext(limit(t), p.addr()))(t) })
	server = must(l.Accept())(t)
	check(t, l.Close())
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// limit returns a context that ends before a test is hopeless.
func limit(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// background runs f and returns its error.
func background(f func() error) <-chan error {
	c := make(chan error, 1)
	go func() { c <- f() }()
	return c
}

// A raw is a peer that speaks the protocol by hand: numbers and layouts are written down here once more.
type raw struct {
	t    testing.TB
	ctx  context.Context
	conn *cm.Conn
	mr   *uverbs.MR // the buffer, the commands, and memory for what is sent
	next uint64     // WRID

	addr   uint64 // what the honest side has announced
	length uint32
	key    uint32
	at     uint64 // what a script has announced
	mute   bool   // receive leaves questions without a reply
}

const (
	rawBuffer   = 1 << 16
	rawReceives = 1024
	rawScratch  = 1 << 16
)

// options returns the options of a raw peer, whose receives are posted.
func (h *raw) options() cm.Options {
	o := cm.Options{OwnPD: true, Param: &cm.ConnParam{RetryCount: 7, RNRRetryCount: 7}}
	o.QP.MaxRecvWR, o.QP.MaxSendWR = rawReceives, 64
	o.Setup = func(c *cm.Conn) (err error) {
		h.conn = c
		if h.mr, err = c.AllocWrite(rawBuffer + rawReceives*32 + rawScratch); err != nil {
			return err
		}
		c.Own(h.mr)
		for i := range rawReceives {
			err = errors.Join(err, h.postReceive(uint64(i)))
		}
		return err
	}
	return o
}

func (h *raw) postReceive(slot uint64) error {
	return h.conn.PostRecv(slot, h.mr.SGE(rawBuffer+int(slot)*32, 32))
}

// A dialed is the result of a dial.
type dialed struct {
	conn net.Conn
	err  error
}

// rawServer returns a raw server, which has announced its buffer with announce, and a client that connects to it.
func rawServer(t testing.TB, config valkeyrdma.Config, announce func(h *raw)) (*raw, <-chan dialed) {
	t.Helper()
	p := machines(t)
	p.here.Allow(verbstest.ReceiveLength, verbstest.RemoteAccess) // what the raw server makes of its own violations
	h := &raw{t: t, ctx: limit(t)}
	var l *cm.Listener
	p.there.Run(func() { l = must(cm.Listen(":6379", &cm.ListenOptions{Options: h.options()}))(t) })
	result := make(chan dialed, 1)
	p.here.Run(func() {
		go func() {
			d := &valkeyrdma.Dialer{Config: config}
			c, err := d.DialContext(h.ctx, p.addr())
			result <- dialed{c, err}
		}()
	})
	must(l.Accept(h.ctx))(t)
	check(t, l.Close())
	t.Cleanup(func() { h.conn.Close() })
	announce(h)
	return h, result
}

// established returns a raw server and its client, after an exchange that follows the protocol.
func established(t testing.TB, config valkeyrdma.Config) (*raw, net.Conn) {
	t.Helper()
	h, result := rawServer(t, config, func(h *raw) {
		h.receive() // the question
		h.send(h.register(h.mr.Addr(), rawBuffer, h.mr.RKey()))
	})
	d := <-result
	check(t, d.err)
	t.Cleanup(func() { d.conn.Close() })
	for h.length == 0 {
		h.receive()
	}
	return h, d.conn
}

func (h *raw) command(op uint16) []byte {
	b := make([]byte, 32)
	binary.BigEndian.PutUint16(b, op)
	return b
}

func (h *raw) register(addr uint64, length, key uint32) []byte {
	b := h.command(3)
	binary.BigEndian.PutUint64(b[16:], addr)
	binary.BigEndian.PutUint32(b[24:], length)
	binary.BigEndian.PutUint32(b[28:], key)
	return b
}

// scratch copies data to memory for what is sent.
func (h *raw) scratch(data []byte) uverbs.SGE {
	at := rawBuffer + rawReceives*32
	copy(h.mr.Bytes()[at:], data)
	return h.mr.SGE(at, len(data))
}

// send sends a message. It returns false if the connection has ended.
func (h *raw) send(b []byte) bool {
	h.next++
	return h.completed(h.conn.PostSend(h.next, uverbs.Signaled, h.scratch(b)))
}

// write writes to the honest side's buffer, at off, with immediate data.
func (h *raw) write(off uint64, b []byte, imm uint32) bool {
	h.next++
	return h.completed(h.conn.PostWriteImm(h.next, uverbs.Signaled, h.addr+off, h.key, imm, h.scratch(b)))
}

// completed waits for the completion of what was posted with err.
func (h *raw) completed(err error) bool {
	if err == nil {
		_, err = h.conn.SendComp(h.ctx)
	}
	return err == nil
}

// receive receives a message: a command, or data of which it returns the length. It replies to questions,
// unless h is mute.
func (h *raw) receive() (op, data int) {
	h.t.Helper()
	wc, err := h.conn.RecvComp(h.ctx)
	check(h.t, err)
	defer func() { check(h.t, h.postReceive(wc.WRID)) }()
	if wc.Opcode == uverbs.WCRecvRDMAImm {
		return -1, int(wc.Imm)
	}
	b := h.mr.Bytes()[rawBuffer+wc.WRID*32:][:32]
	op = int(binary.BigEndian.Uint16(b))
	switch op {
	case 0:
		if !h.mute {
			h.send(h.command(0))
		}
	case 3:
		h.addr, h.length = binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint32(b[24:])
		h.key = binary.BigEndian.Uint32(b[28:])
	}
	return op, 0
}
