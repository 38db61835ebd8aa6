package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/rsocket"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// exchangeAll connects, writes in both directions, maps memory and ends the connection. It returns the first error of
// either side.
func exchangeAll(t *testing.T, p *pair) error {
	config := rsocket.Config{Mappings: 1, KeepAlive: -1}
	lc := &rsocket.ListenConfig{Config: config}
	var l net.Listener
	var err error
	p.onServer(func() { l, err = lc.Listen(t.Context(), "tcp", ":7471") })
	if err != nil {
		return err
	}
	var served <-chan error
	p.onServer(func() {
		served = background(func() error {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			_ = c.SetDeadline(time.Now().Add(patience))
			return errors.Join(echoAll(c.(*rsocket.Conn)), c.Close())
		})
	})
	p.onClient(func() {
		d := &rsocket.Dialer{Config: config}
		var c net.Conn
		if c, err = d.DialContext(t.Context(), "tcp", p.there.AddrPort(7471).String()); err == nil {
			_ = c.SetDeadline(time.Now().Add(patience))
			err = errors.Join(talk(c.(*rsocket.Conn)), c.Close())
		}
	})
	return errors.Join(err, l.Close(), within(t, served, "the server"))
}

func echoAll(c *rsocket.Conn) error {
	m, err := c.MapMemory(make([]byte, 100), 0)
	if err != nil {
		return err
	}
	if _, err := io.Copy(c, c); err != nil {
		return err
	}
	return m.Close()
}

func talk(c *rsocket.Conn) error {
	b := data(300000)
	wrote := background(func() error { _, err := c.Write(b); return err })
	got := make([]byte, len(b))
	_, err := io.ReadFull(c, got)
	if err = errors.Join(err, <-wrote); err != nil {
		return err
	}
	if !bytes.Equal(got, b) {
		return errors.New("other data")
	}
	if _, err := c.WriteAt([]byte("x"), 99); err != nil {
		return err
	}
	return c.CloseWrite()
}

// TestEachCommandFails makes each command of the kernel fail in turn, on either side. Each time there is an error, and
// nothing is left, which package verbstest checks.
func TestEachCommandFails(t *testing.T) {
	for _, side := range roles {
		t.Run(side, func(t *testing.T) {
			p := machines(t)
			m := p.here
			if side == "server" {
				m = p.there
			}
			before := m.Commands()
			check(t, exchangeAll(t, p))
			commands := m.Commands() - before
			if commands < 8 {
				t.Errorf("%d commands", commands)
			}
			failed := 0
			for n := range commands {
				m.FailCommand(n+1, unix.EIO)
				before := m.Commands()
				err := exchangeAll(t, p)
				if m.Commands()-before <= n { // it was not reached: use it up
					m.FailCommand(1, unix.EIO)
					_ = exchangeAll(t, p)
				} else if err != nil {
					failed++
				}
			}
			if failed < commands/2 {
				t.Errorf("%d of %d commands cause an error", failed, commands)
			}
			check(t, exchangeAll(t, p))
		})
	}
}

// TestLimits checks the errors without memory or objects, on either side, and that nothing is left.
func TestLimits(t *testing.T) {
	for name, limits := range map[string]verbstest.Limits{
		"memory": {Memlock: 1 << 16}, "QPs": {QPs: 1}, "CQs": {CQs: 1}, "MRs": {MRs: 1}, "PDs": {PDs: 1},
		"objects": {Objects: 3},
	} {
		t.Run(name, func(t *testing.T) {
			p := machines(t)
			p.dial(t, rsocket.Config{}, rsocket.Config{})
			l := p.listen(t, rsocket.Config{})
			var accepted <-chan error
			p.onServer(func() { accepted = background(func() error { _, err := l.AcceptConn(); return err }) })
			p.there.SetLimits(limits)
			p.onClient(func() {
				_, err := rsocket.Dial("tcp", p.addr(l))
				isError(t, err, syscall.ECONNREFUSED)
			})
			err := within(t, accepted, "Accept")
			var temporary interface{ Temporary() bool }
			if !errors.As(err, &temporary) || !temporary.Temporary() {
				t.Errorf("Accept returns %v", err)
			}
			p.there.SetLimits(verbstest.Limits{})
			p.here.SetLimits(limits)
			p.onClient(func() {
				_, err := rsocket.Dial("tcp", p.addr(l))
				var op *net.OpError
				if !errors.As(err, &op) || !errors.Is(err, unix.ENOMEM) && !errors.Is(err, unix.EAGAIN) {
					t.Errorf("Dial returns %v", err)
				}
				if name == "memory" {
					isError(t, err, uverbs.ErrMemlock)
				}
			})
			p.here.SetLimits(verbstest.Limits{})
			check(t, l.Close())
			p.exchange(t, []byte("the connection before"))
		})
	}
}

// TestKilled checks that the end of a machine is noticed, without and with outstanding data, and that it is not taken
// for an orderly end.
func TestKilled(t *testing.T) {
	for name, f := range map[string]func(c *rsocket.Conn) error{
		"Read": func(c *rsocket.Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"Write": func(c *rsocket.Conn) error {
			_, err := c.Write(make([]byte, 1<<20))
			return err
		},
		"WriteTo": func(c *rsocket.Conn) error { _, err := c.WriteTo(io.Discard); return err },
	} {
		t.Run(name, func(t *testing.T) {
			p := machines(t)
			p.net.SetTimeouts(verbstest.Timeouts{Ack: 10, Reply: 10 * time.Millisecond})
			p.dial(t, rsocket.Config{KeepAlive: 5 * time.Millisecond}, rsocket.Config{KeepAlive: -1})
			done := background(func() error { return f(p.client) })
			p.there.Kill()
			isError(t, within(t, done, name), syscall.ECONNRESET)
			isError(t, readEnd(t, p.client), syscall.ECONNRESET)
			_, err := p.client.Write([]byte("x"))
			isError(t, err, syscall.ECONNRESET)
			check(t, p.client.Close())
			_, err = io.Copy(io.Discard, p.server) // what arrived before
			isError(t, err, uverbs.ErrDeviceGone)
		})
	}
}

// aliveTime is the interval of keepalives of peers that live. Their devices reply within four of them.
const aliveTime = 100 * time.Millisecond

// TestStopped checks that a peer whose program is stopped is not taken for dead.
func TestStopped(t *testing.T) {
	config := rsocket.Config{KeepAlive: aliveTime, RecvBuffer: 8192, RecvQueue: 16, SendQueue: 16}
	p := connect(t, config, rsocket.Config{KeepAlive: -1, RecvBuffer: 8192, RecvQueue: 16})
	b := data(1 << 20)
	wrote := background(func() error { _, err := p.client.Write(b); return err })
	waits := background(func() error { _, err := p.client.Read(make([]byte, 1)); return err })
	select {
	case err := <-wrote:
		t.Fatal(err)
	case err := <-waits:
		t.Fatal(err)
	case <-time.After(6 * aliveTime):
	}
	read(t, p.server, b)
	write(t, p.server, []byte("x"))
	check(t, within(t, wrote, "Write"))
	check(t, within(t, waits, "Read"))
}

// TestIdle checks that an idle connection lives as long as its keepalives are replied to.
func TestIdle(t *testing.T) {
	config := rsocket.Config{KeepAlive: aliveTime}
	p := connect(t, config, config)
	<-time.After(6 * aliveTime)
	p.exchange(t, []byte("still there"))
}

// TestPacketFaults loses, repeats, delays and reorders packets, and compares the data.
func TestPacketFaults(t *testing.T) {
	for _, f := range []verbstest.PacketFault{
		{Action: verbstest.Drop, Probability: 0.02},
		{Action: verbstest.Duplicate, Probability: 0.3},
		{Action: verbstest.Reorder, Probability: 0.02},
		{Action: verbstest.Delay, Probability: 0.02, Delay: time.Millisecond},
	} {
		t.Run(string(f.Action), func(t *testing.T) {
			t.Parallel()
			p := machines(t)
			p.net.SetTimeouts(verbstest.Timeouts{Ack: 8})
			p.dial(t, rsocket.Config{}, rsocket.Config{RecvBuffer: 10000})
			defer p.net.AddFault(f)()
			for _, n := range []int{1, 100, 5000, 300000} {
				p.exchange(t, data(n))
			}
		})
	}
}

// TestPortDown checks that a connection outlives a cable that is pulled for a moment.
func TestPortDown(t *testing.T) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, rsocket.Config{}, rsocket.Config{})
	p.there.SetPort(false)
	write(t, p.client, []byte("later"))
	check(t, p.server.SetReadDeadline(time.Now().Add(5*time.Millisecond)))
	if err := readEnd(t, p.server); !strings.Contains(err.Error(), "timeout") {
		t.Errorf("Read returns %v", err)
	}
	check(t, p.server.SetReadDeadline(time.Time{}))
	p.there.SetPort(true)
	read(t, p.server, []byte("later"))
}

// TestRemovedDevice checks that all calls on a removed device return an error that says so.
func TestRemovedDevice(t *testing.T) {
	for name, f := range map[string]func(c *rsocket.Conn) error{
		"Read":    func(c *rsocket.Conn) error { _, err := c.Read(make([]byte, 1)); return err },
		"Write":   func(c *rsocket.Conn) error { _, err := c.Write(make([]byte, 1<<20)); return err },
		"WriteTo": func(c *rsocket.Conn) error { _, err := c.WriteTo(io.Discard); return err },
		"WriteAt": func(c *rsocket.Conn) error {
			for {
				if _, err := c.WriteAt([]byte("x"), 0); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := machines(t)
			p.net.Allow(verbstest.Destination)
			// The client's requests must not run out of retries before it notices that its device is gone.
			p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
			p.dial(t, rsocket.Config{Mappings: 1}, rsocket.Config{KeepAlive: 5 * time.Millisecond})
			must(p.server.MapMemory(make([]byte, 10), 0))(t)
			write(t, p.server, []byte("x"))
			read(t, p.client, []byte("x"))
			done := background(func() error { return f(p.client) })
			p.here.RemoveDevice()
			err := within(t, done, name)
			isError(t, err, uverbs.ErrDeviceGone)
			isError(t, err, syscall.ECONNRESET)
			isError(t, within(t, background(func() error { return f(p.client) }), "the second call"), uverbs.ErrDeviceGone)
			check(t, within(t, background(p.client.Close), "Close"))
			copied := background(func() error { _, err := io.Copy(io.Discard, p.server); return err })
			isError(t, within(t, copied, "io.Copy"), syscall.ECONNRESET)
		})
	}
}

// TestListenerDeviceRemoved checks that Accept ends with the device.
func TestListenerDeviceRemoved(t *testing.T) {
	p := machines(t)
	var l *rsocket.Listener
	var accepted <-chan error
	p.onServer(func() {
		l = must(rsocket.Listen("tcp", p.there.AddrPort(0).String()))(t)
		accepted = background(func() error { _, err := l.AcceptConn(); return err })
	})
	p.there.RemoveDevice()
	err := within(t, accepted, "Accept")
	if !errors.Is(err, net.ErrClosed) && !errors.Is(err, uverbs.ErrDeviceGone) {
		t.Errorf("Accept returns %v", err)
	}
	_ = l.Close() // it may have ended
}

// TestFailedRequest checks that WriteMR does not report success for a request that has failed.
func TestFailedRequest(t *testing.T) {
	p := connect(t, rsocket.Config{}, rsocket.Config{})
	mr := must(p.client.CM().PD().Alloc(5000, uverbs.LocalWrite))(t)
	defer func() { check(t, mr.Close()) }()
	check(t, p.client.SetDeadline(time.Now().Add(patience)))
	if n, err := p.client.WriteMR(mr, 0, 5000); n != 5000 || err != nil {
		t.Fatalf("WriteMR returns %d, %v", n, err)
	}
	read(t, p.server, make([]byte, 5000))
	p.here.FailCompletion(p.client.CM().QP(), uverbs.WCRemOpErr, 0)
	_, err := p.client.WriteMR(mr, 0, 5000)
	isError(t, err, uverbs.WCRemOpErr)
	isError(t, err, syscall.ECONNRESET)
}

// TestUnreachable checks the errors of Dial and Listen without a way by RDMA.
func TestUnreachable(t *testing.T) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Reply: 5 * time.Millisecond, Repeats: 2})
	dial := func(addr string) (err error) {
		p.onClient(func() { _, err = rsocket.Dial("tcp", addr) })
		return err
	}
	for _, addr := range []string{"127.0.0.1:7471", "[::1]:7471"} {
		isError(t, dial(addr), rsocket.ErrNoRDMA)
		p.onServer(func() {
			_, err := rsocket.Listen("tcp", addr)
			isError(t, err, rsocket.ErrNoRDMA)
			if !strings.Contains(err.Error(), "use package net") {
				t.Errorf("%v does not say what to do", err)
			}
		})
	}
	isError(t, dial(p.there.AddrPort(7471).String()), syscall.ECONNREFUSED)
	heal := p.net.Partition(p.here, p.there)
	p.onClient(func() {
		d := &rsocket.Dialer{Timeout: 20 * time.Millisecond}
		_, err := d.DialContext(t.Context(), "tcp", p.there.AddrPort(7471).String())
		var timeout net.Error
		if !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("Dial returns %v, want a timeout", err)
		}
	})
	heal()
	for _, addr := range []string{"", "host", ":http:", "192.0.2.1"} {
		var op *net.OpError
		if err := dial(addr); !errors.As(err, &op) {
			t.Errorf("%q: %v", addr, err)
		}
	}
	var unknown net.UnknownNetworkError
	p.onClient(func() {
		if _, err := rsocket.Dial("udp", "192.0.2.1:1"); !errors.As(err, &unknown) {
			t.Errorf("%v", err)
		}
	})
}

// TestEndBesideEverything ends a connection in all ways while goroutines on both sides use all methods. All calls
// return, and nothing is left, which package verbstest checks.
func TestEndBesideEverything(t *testing.T) {
	for name, end := range map[string]func(p *pair){
		"peer without power": func(p *pair) { p.there.Kill() },
		"device removed":     func(p *pair) { p.here.RemoveDevice() },
		"peer's device":      func(p *pair) { p.there.RemoveDevice() },
		"partition":          func(p *pair) { p.net.Partition(p.here, p.there) },
		"completion":         func(p *pair) { p.here.FailCompletion(nil, uverbs.WCRemOpErr, 0) },
		"peer's completion":  func(p *pair) { p.there.FailCompletion(nil, uverbs.WCLocProtErr, 3) },
		"disconnect":         func(p *pair) { _ = p.client.CM().ID().ID.Disconnect() },
		"close":              func(p *pair) { _ = p.client.Close() },
		"both close":         func(p *pair) { closed := background(p.server.Close); _ = p.client.Close(); <-closed },
		"close of directions": func(p *pair) {
			_ = errors.Join(p.client.CloseWrite(), p.server.CloseRead(), p.client.CloseRead(), p.server.CloseWrite())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endBesideEverything(t, end)
		})
	}
}

func endBesideEverything(t *testing.T, end func(p *pair)) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 10, Reply: 10 * time.Millisecond})
	p.net.Allow(verbstest.RemoteAccess, verbstest.Destination)
	config := rsocket.Config{Linger: 20 * time.Millisecond, KeepAlive: 5 * time.Millisecond, Mappings: 4,
		RecvBuffer: 16384}
	p.dial(t, config, config)
	var users sync.WaitGroup
	var moved sync.WaitGroup
	for _, c := range []*rsocket.Conn{p.client, p.server} {
		moved.Add(1)
		users.Go(func() {
			_, err := c.Read(make([]byte, 5000))
			moved.Done()
			for err == nil {
				_, err = c.Read(make([]byte, 5000))
			}
		})
		users.Go(func() { untilError(func() error { _, err := c.Write(data(3000)); return err }) })
		users.Go(func() { untilError(func() error { _, err := c.ReadFrom(bytes.NewReader(data(3000))); return err }) })
		users.Go(func() {
			untilError(func() error {
				<-time.After(time.Millisecond)
				return c.SetDeadline(time.Now().Add(patience))
			})
		})
		users.Go(func() {
			untilError(func() error {
				m, err := c.MapMemory(make([]byte, 100), 0)
				if err == nil {
					_, err = c.WriteAt([]byte("x"), 0)
					err = errors.Join(err, m.Close())
				}
				<-time.After(time.Millisecond)
				if errors.Is(err, rsocket.ErrMapping) {
					err = nil
				}
				return err
			})
		})
	}
	moved.Wait()
	end(p)
	for _, c := range []*rsocket.Conn{p.client, p.server} {
		isEnd(t, within(t, background(func() error { _, err := io.Copy(io.Discard, c); return err }), "io.Copy"))
	}
	closed := background(p.server.Close)
	_ = within(t, background(p.client.Close), "Close")
	_ = within(t, closed, "Close")
	users.Wait()
}

func untilError(f func() error) {
	for f() == nil {
	}
}

// isEnd checks the error of a call on a connection that has ended somehow.
func isEnd(t *testing.T, err error) {
	t.Helper()
	if err != nil && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, net.ErrClosed) {
		t.Errorf("the error is %v", err)
	}
}
