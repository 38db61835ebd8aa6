package rproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/program"
	"github.com/goverbs/goverbs/cmd/internal/program/programtest"
	"github.com/goverbs/goverbs/internal/sim/errtest"
	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/verbstest"
)

const patience = programtest.Patience

// A rig is a proxy between a client and a server, one of which uses an rsocket, from another machine than the proxy.
type rig struct {
	t            *testing.T
	net          *verbstest.Network
	here, there  *verbstest.Machine // of the client or server on an rsocket, and of the proxy
	clientOnRDMA bool
	server       net.Listener
	addr         string // of the proxy
	proxy        *programtest.Run
}

var check = errtest.Check

func must[T any](v T, err error) func(testing.TB) T { return errtest.Value(v, err) }

// directions runs a test with the client, and then the server, on an rsocket.
func directions(t *testing.T, options string, f func(t *testing.T, r *rig)) {
	for name, clientOnRDMA := range map[string]bool{"rsocket to TCP": true, "TCP to rsocket": false} {
		t.Run(name, func(t *testing.T) { f(t, newRig(t, clientOnRDMA, options)) })
	}
}

// newRig starts a server and a proxy for it.
func newRig(t *testing.T, clientOnRDMA bool, options string) *rig {
	return newLimitedRig(t, clientOnRDMA, options, verbstest.Limits{})
}

// newLimitedRig is newRig with limits of the machine of the proxy.
func newLimitedRig(t *testing.T, clientOnRDMA bool, options string, limits verbstest.Limits) *rig {
	n := verbstest.NewNetwork(t)
	r := &rig{t: t, net: n, here: n.Machine(), there: n.Machine(), clientOnRDMA: clientOnRDMA}
	r.there.SetLimits(limits)
	to, from := "tcp:", "rsocket:"+r.there.AddrPort(7471).String()
	if clientOnRDMA {
		r.server = must(net.Listen("tcp", "127.0.0.1:0"))(t)
		r.addr = r.there.AddrPort(7471).String()
		to += r.server.Addr().String()
	} else {
		r.here.Run(func() { r.server = must(rsocket.Listen("tcp", ":7471"))(t) })
		to, from = "rsocket:"+r.here.AddrPort(7471).String(), "tcp:127.0.0.1:0"
	}
	t.Cleanup(func() { _ = r.server.Close() }) // it may be closed
	args := append(strings.Fields(options), "-v", from, to)
	r.proxy = programtest.Start(t, r.there, func(ctx context.Context, out, messages io.Writer) error {
		return run(ctx, args, out, messages)
	})
	r.proxy.Says("listening on ")
	if !clientOnRDMA {
		_, rest, _ := strings.Cut(r.proxy.Messages.String(), "listening on ")
		r.addr, _, _ = strings.Cut(rest, "\n")
	}
	return r
}

// dial connects a client to the proxy.
func (r *rig) dial() conn {
	r.t.Helper()
	c, err := r.tryDial()
	check(r.t, err)
	return r.keep(c)
}

// isRefused checks that the connection of a client is rejected, or reset at the latest when it reads.
func (r *rig) isRefused() {
	r.t.Helper()
	if c, err := r.tryDial(); err == nil {
		r.isReset(r.keep(c))
	} else if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.ECONNREFUSED) {
		r.t.Fatal(err)
	}
}

func (r *rig) tryDial() (c net.Conn, err error) {
	if r.clientOnRDMA {
		r.here.Run(func() { c, err = new(rsocket.Dialer).DialContext(r.t.Context(), "tcp", r.addr) })
	} else {
		c, err = net.Dial("tcp", r.addr)
	}
	return c, err
}

// accept returns the connection of the proxy to the server.
func (r *rig) accept() conn {
	r.t.Helper()
	type deadliner interface{ SetDeadline(time.Time) error }
	check(r.t, r.server.(deadliner).SetDeadline(time.Now().Add(patience)))
	var c net.Conn
	var err error
	r.here.Run(func() { c, err = r.server.Accept() })
	check(r.t, err)
	return r.keep(c)
}

func (r *rig) keep(c net.Conn) conn {
	check(r.t, c.SetDeadline(time.Now().Add(patience)))
	r.t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return c.(conn)
}

// connect returns both ends of a connection by the proxy.
func (r *rig) connect() (client, server conn) {
	r.t.Helper()
	client = r.dial()
	return client, r.accept()
}

func (r *rig) write(c conn, b []byte) {
	r.t.Helper()
	must(c.Write(b))(r.t)
}

func (r *rig) read(c conn, want string) {
	r.t.Helper()
	got := make([]byte, len(want))
	must(io.ReadFull(c, got))(r.t)
	if string(got) != want {
		r.t.Fatalf("%.80q has arrived, want %.80q", got, want)
	}
}

func (r *rig) isEOF(c conn) {
	r.t.Helper()
	if n, err := c.Read(make([]byte, 1)); n != 0 || err != io.EOF {
		r.t.Fatalf("Read returns %d, %v, want EOF", n, err)
	}
}

func (r *rig) isReset(c conn) {
	r.t.Helper()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		r.t.Fatalf("the connection ends with %v, want a reset", err)
	}
}

// TestHalfClose sends a request until its end, and then a reply until its end.
func TestHalfClose(t *testing.T) {
	const size = 3<<20 + 5
	directions(t, "-I 65536 -O 65536", func(t *testing.T, r *rig) {
		client, server := r.connect()
		sent := make(chan error, 1)
		go func() {
			_, err := client.Write(programtest.Data(size))
			sent <- errors.Join(err, client.CloseWrite())
		}()
		request, err := io.ReadAll(server)
		if err != nil || !bytes.Equal(request, programtest.Data(size)) {
			t.Fatalf("a request of %d bytes, %v", len(request), err)
		}
		check(t, <-sent)
		go func() {
			_, err := server.Write(programtest.Data(size))
			sent <- errors.Join(err, server.Close())
		}()
		reply, err := io.ReadAll(client)
		if err != nil || !bytes.Equal(reply, programtest.Data(size)) {
			t.Fatalf("a reply of %d bytes, %v", len(reply), err)
		}
		check(t, <-sent)
		check(t, client.Close())
		r.proxy.Says(fmt.Sprintf("closed after %d bytes from the client, %d to it", size, size))
	})
}

// TestServerEndsFirst ends the direction to the client first.
func TestServerEndsFirst(t *testing.T) {
	directions(t, "", func(t *testing.T, r *rig) {
		client, server := r.connect()
		r.write(server, []byte("greeting"))
		check(t, server.CloseWrite())
		r.read(client, "greeting")
		r.isEOF(client)
		r.write(client, []byte("reply"))
		check(t, client.CloseWrite())
		r.read(server, "reply")
		r.isEOF(server)
	})
}

// TestReset resets the connection at either end.
func TestReset(t *testing.T) {
	directions(t, "", func(t *testing.T, r *rig) {
		client, server := r.connect()
		r.write(client, []byte("x"))
		r.read(server, "x")
		check(t, reset(server))
		r.isReset(client)
		client, server = r.connect()
		check(t, reset(client))
		r.isReset(server)
		r.proxy.Says("connection reset")
		client, server = r.connect() // the proxy goes on
		r.write(client, []byte("y"))
		r.read(server, "y")
	})
}

// TestDead kills the machine of the end that uses an rsocket.
func TestDead(t *testing.T) {
	directions(t, "-i 1", func(t *testing.T, r *rig) {
		r.net.SetTimeouts(verbstest.Timeouts{Ack: 10, Reply: 10 * time.Millisecond})
		client, server := r.connect()
		r.here.Kill()
		if r.clientOnRDMA {
			r.isReset(server)
		} else {
			r.isReset(client)
		}
	})
}

// TestNoServer has no program that listens at the second address.
func TestNoServer(t *testing.T) {
	directions(t, "", func(t *testing.T, r *rig) {
		check(t, r.server.Close())
		r.isRefused()
		r.proxy.Says(": dial tcp ")
	})
}

// TestLimits connects more often than the limits permit, and again after the end of a connection.
func TestLimits(t *testing.T) {
	for _, options := range []string{"-c 2", "-p 2"} {
		directions(t, options, func(t *testing.T, r *rig) {
			client, server := r.connect()
			r.connect()
			r.isRefused()
			if !r.clientOnRDMA { // TCP cannot say why
				r.proxy.Says("too many connections: ")
			}
			check(t, client.Close())
			check(t, server.Close())
			r.proxy.Says("closed after ")
			programtest.Await(t, "a place is free", func() bool {
				c, err := r.tryDial()
				if err == nil {
					client, server = r.keep(c), r.accept()
				}
				return err == nil
			})
			r.write(client, []byte("x"))
			r.read(server, "x")
		})
	}
}

// TestIdle resets a connection on which nothing is sent.
func TestIdle(t *testing.T) {
	directions(t, "--idle 1", func(t *testing.T, r *rig) {
		client, server := r.connect()
		r.isReset(client)
		r.isReset(server)
		r.proxy.Says("nothing was sent or received")
	})
}

// TestInterrupt ends the proxy without connections, with one that is reset, and with one that ends in time.
func TestInterrupt(t *testing.T) {
	directions(t, "", func(t *testing.T, r *rig) {
		r.proxy.Interrupt()
		check(t, r.proxy.Wait())
	})
	directions(t, "", func(t *testing.T, r *rig) {
		client, server := r.connect()
		r.proxy.Interrupt()
		r.isReset(client)
		r.isReset(server)
		err := r.proxy.Wait()
		if !errors.Is(err, program.ErrInterrupted) || !strings.Contains(err.Error(), "1 connection was reset") {
			t.Errorf("the proxy ends with %v", err)
		}
	})
	directions(t, "--grace 1000", func(t *testing.T, r *rig) {
		client, server := r.connect()
		r.proxy.Interrupt()
		r.write(client, []byte("x"))
		r.read(server, "x")
		check(t, client.Close())
		r.isEOF(server)
		check(t, server.Close())
		check(t, r.proxy.Wait())
	})
}

// A failingListener returns connections, and then an error.
type failingListener struct {
	net.Listener
	conns  chan net.Conn
	before func() // called before Accept returns
	err    error
}

func (l *failingListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	l.before()
	if !ok {
		return nil, l.err
	}
	return c, nil
}

// accepted returns the ends of a TCP connection to l.
func accepted(t *testing.T, l net.Listener) (client, server conn) {
	c := must(net.Dial("tcp", l.Addr().String()))(t)
	s := must(l.Accept())(t)
	t.Cleanup(func() { _, _ = c.Close(), s.Close() })
	check(t, c.SetDeadline(time.Now().Add(patience)))
	return c.(conn), s.(conn)
}

// serves runs a proxy between TCP addresses whose listener accepts the connections, and returns its error.
func serves(t *testing.T, ctx context.Context, l *failingListener, to string, conns ...net.Conn) error {
	o := must(parseOptions([]string{"tcp:127.0.0.1:0", "tcp:" + to}))(t)
	l.conns = make(chan net.Conn, len(conns))
	for _, c := range conns {
		l.conns <- c
	}
	close(l.conns)
	p := &proxy{options: o, log: log.New(io.Discard, "", 0)}
	return p.serveAt(ctx, l)
}

// TestListenerFails has a listener that fails without a signal while connections are open.
func TestListenerFails(t *testing.T) {
	clients, servers := must(net.Listen("tcp", "127.0.0.1:0"))(t), must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer servers.Close()
	var conns []net.Conn
	var ends []conn
	for range 2 {
		end, c := accepted(t, clients)
		ends, conns = append(ends, end), append(conns, c)
	}
	broken := errors.New("broken")
	left := len(conns)
	l := &failingListener{Listener: clients, err: broken, before: func() {
		if left--; left < 0 { // both are connected to the server when Accept fails
			for range conns {
				c := must(servers.Accept())(t)
				t.Cleanup(func() { _ = c.Close() }) // it is reset
			}
		}
	}}
	err := serves(t, t.Context(), l, servers.Addr().String(), conns...)
	if !errors.Is(err, broken) || !strings.HasSuffix(err.Error(), "2 connections were reset") ||
		strings.Contains(err.Error(), "%!") {
		t.Errorf("the proxy ends with %q", err)
	}
	for _, c := range ends {
		if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection of a client ends with %v, want a reset", err)
		}
	}
}

// TestAcceptedLate has a listener that returns a connection after the signal.
func TestAcceptedLate(t *testing.T) {
	clients := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	end, c := accepted(t, clients)
	ctx, cancel := context.WithCancelCause(t.Context())
	l := &failingListener{Listener: clients, before: func() { cancel(program.ErrInterrupted) }}
	err := serves(t, ctx, l, "127.0.0.1:1", c)
	if !errors.Is(err, program.ErrInterrupted) || !strings.HasSuffix(err.Error(), "1 connection was reset") {
		t.Errorf("the proxy ends with %v", err)
	}
	if _, err := io.Copy(io.Discard, end); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection of the client ends with %v, want a reset", err)
	}
}

// A badConn is a connection whose resets fail.
type badConn struct {
	conn
	err error
}

func (c badConn) SetLinger(int) error { return c.err }

// TestFailedReset checks that a reset that fails when the program ends is reported, and others are not.
func TestFailedReset(t *testing.T) {
	clients, servers := must(net.Listen("tcp", "127.0.0.1:0"))(t), must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer clients.Close()
	defer servers.Close()
	for _, failed := range []error{nil, errors.New("no reset")} {
		_, c := accepted(t, clients)
		var messages programtest.Buffer
		o := must(parseOptions([]string{"tcp:127.0.0.1:0", "tcp:" + servers.Addr().String()}))(t)
		p := &proxy{options: o, log: log.New(&messages, "", 0)}
		ctx, end := context.WithCancelCause(t.Context())
		end(errEnding)
		p.handle(ctx, badConn{c, failed})
		if said := strings.Contains(messages.String(), "no reset"); said != (failed != nil) || p.cut.Load() != 1 {
			t.Errorf("resets fail with %v: %d are counted, the messages are %q", failed, p.cut.Load(), messages.String())
		}
	}
}

// TestRefused checks that a client is named for whose rsocket there is no memory, and that one address may use all of
// it unless --per-peer is set.
func TestRefused(t *testing.T) {
	r := newLimitedRig(t, true, "", verbstest.Limits{Memlock: 8 << 20})
	for n := 0; ; n++ {
		c, err := r.tryDial()
		if err == nil {
			r.keep(c)
			r.accept()
			continue
		}
		if !errors.Is(err, syscall.ECONNREFUSED) || !strings.Contains(err.Error(), "ListenConfig.MaxMemory: ") || n < 8 {
			t.Fatalf("after %d connections: %v", n, err)
		}
		break
	}
	r.proxy.Says(": refused: ")
	r.proxy.Says(r.here.Addr().String())
}

// echo serves connections until the listener is closed.
func (r *rig) echo() {
	for {
		c, err := r.server.Accept()
		if err != nil {
			return
		}
		go func() {
			_, err := io.Copy(c, c)
			if err = errors.Join(err, c.Close()); err != nil {
				r.t.Error(err)
			}
		}()
	}
}

// TestMany forwards connections side by side.
func TestMany(t *testing.T) {
	const connections, size = 20, 300000
	directions(t, "", func(t *testing.T, r *rig) {
		r.here.Run(func() { go r.echo() })
		var all sync.WaitGroup
		for range connections {
			c := r.dial()
			all.Go(func() {
				go func() {
					if _, err := c.Write(programtest.Data(size)); err != nil {
						t.Error(err)
					}
					if err := c.CloseWrite(); err != nil {
						t.Error(err)
					}
				}()
				if got, err := io.ReadAll(c); err != nil || !bytes.Equal(got, programtest.Data(size)) {
					t.Errorf("%d bytes come back, %v", len(got), err)
				}
			})
		}
		all.Wait()
	})
}

// TestOptions checks options that are refused, addresses that cannot be listened at, and the usage.
func TestOptions(t *testing.T) {
	for _, args := range []string{"", "tcp::1", "tcp::1 tcp:h:1 tcp:h:2", "udp::1 tcp:h:1", "tcp::1 rsocket",
		"tcp:1 tcp:h:1", "tcp::1 tcp::1", "rsocket::1 tcp:h:0", "-c 0 rsocket::1 tcp:h:1",
		"-i 1 tcp::1 tcp:h:1", "-x rsocket::1 tcp:h:1"} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
	o := must(parseOptions(strings.Fields("rsocket6:[::1]:1 tcp4:h:2")))(t)
	if got := fmt.Sprint(o.from, " ", o.to); got != "rsocket6:[::1]:1 tcp4:h:2" || o.most != defaultMost {
		t.Errorf("%s, %d", got, o.most)
	}
	var out bytes.Buffer
	check(t, run(t.Context(), []string{"--help"}, &out, nil))
	if !strings.Contains(out.String(), "Usage: rproxy") || !strings.Contains(out.String(), "--grace") {
		t.Errorf("the usage is %q", &out)
	}
	verbstest.NewNetwork(t).Machine().Run(func() {
		err := run(t.Context(), []string{"rsocket:127.0.0.1:1", "tcp:h:1"}, io.Discard, io.Discard)
		if !errors.Is(err, rsocket.ErrNoRDMA) {
			t.Errorf("without a device: %v", err)
		}
	})
}
