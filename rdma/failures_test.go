package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// exchange connects, shares memory, and sends messages of all kinds. It returns the first error of either side.
func exchange(t *testing.T, p *pair) error {
	ctx := limit(t)
	l := p.listen(t, nil)
	served := make(chan error, 1)
	p.onServer(func() {
		go func() { served <- exchangeServer(ctx, l) }()
	})
	var err error
	p.onClient(func() { err = exchangeClient(ctx, p.addr(l)) })
	return errors.Join(err, l.Close(), <-served)
}

// exchangeServer accepts connections until one gets to its end or the listener is closed.
func exchangeServer(ctx context.Context, l *rdma.Listener) (err error) {
	c, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r := rdma.NewRegion(4096)
	defer func() { err = errors.Join(err, r.Close()) }()
	s, err := c.Share(ctx, r, rdma.CanRead|rdma.CanWrite)
	if err != nil {
		return err
	}
	token, _ := s.Token().MarshalBinary()
	if err := c.Send(ctx, token); err != nil {
		return err
	}
	for {
		m, err := c.Recv(ctx)
		if err != nil {
			if errors.Is(err, rdma.ErrDisconnected) || err.Error() == "EOF" {
				err = nil
			}
			return err
		}
		err = m.Reply(ctx, m.Bytes())
		m.Release()
		if err != nil {
			return err
		}
	}
}

func exchangeClient(ctx context.Context, addr string) (err error) {
	c, err := rdma.Dial(ctx, addr, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := c.Recv(ctx)
	if err != nil {
		return err
	}
	var token rdma.Token
	err = token.UnmarshalBinary(m.Bytes())
	m.Release()
	if err != nil {
		return err
	}
	for _, n := range []int{10, 3000, 300000} {
		m, err := c.Call(ctx, pattern(n, n))
		if err != nil {
			return err
		}
		if !bytes.Equal(m.Bytes(), pattern(n, n)) {
			return errors.New("another reply")
		}
		m.Release()
		if err := c.Write(ctx, pattern(n%4096, 1), token, 0); err != nil {
			return err
		}
	}
	return nil
}

// TestEachCommandFails makes each command of the kernel fail in turn, on either side. Each time the caller gets an
// error, and nothing is left, which package verbstest checks.
func TestEachCommandFails(t *testing.T) {
	t.Parallel()
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			p := machines(t)
			m := p.here
			if side == "server" {
				m = p.there
			}
			before := m.Commands()
			check(t, exchange(t, p))
			commands := m.Commands() - before
			if commands < 10 {
				t.Errorf("%d commands", commands)
			}
			failed := 0
			for i := range commands {
				before := m.Commands()
				m.FailCommand(i+1, unix.EIO)
				err := exchange(t, p)
				if m.Commands()-before <= i { // it was not reached: use it up
					m.FailCommand(1, unix.EIO)
					_ = exchange(t, p)
					continue
				}
				if err != nil {
					failed++
				}
			}
			if failed < commands/2 {
				t.Errorf("%d of %d commands cause an error", failed, commands)
			}
			check(t, exchange(t, p))
		})
	}
}

// TestMemoryLimit checks that a connection without memory for a message stays usable, and that the message arrives when
// there is memory.
func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	p := connect(t, nil, nil)
	ctx := limit(t)
	const long = 4 << 20
	p.here.SetLimits(verbstest.Limits{Memlock: 1})
	isError(t, p.client.Send(ctx, make([]byte, long)), uverbs.ErrMemlock)
	_, err := p.client.Alloc(long)
	isError(t, err, uverbs.ErrMemlock)
	check(t, p.client.Send(ctx, []byte("short")))
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	p.here.SetLimits(verbstest.Limits{})

	p.there.SetLimits(verbstest.Limits{Memlock: 1})
	check(t, p.client.Send(ctx, pattern(long, 1)))
	check(t, p.client.Send(ctx, []byte("next")))
	for range 3 {
		_, err := p.server.Recv(ctx)
		isError(t, err, uverbs.ErrMemlock)
	}
	canceled, cancel := context.WithCancel(ctx)
	defer cancel()
	sent := p.client.Stats().Sent
	called := background(func() error { _, err := p.client.Call(canceled, []byte("no reply")); return err })
	until(t, "the call is sent", func() bool { return p.client.Stats().Sent > sent })
	cancel()
	isError(t, within(t, called, "a call that is canceled"), context.Canceled)
	p.there.SetLimits(verbstest.Limits{})
	for _, want := range [][]byte{pattern(long, 1), []byte("next"), []byte("no reply")} {
		m := must(p.server.Recv(ctx))(t)
		if !bytes.Equal(m.Bytes(), want) {
			t.Errorf("%d bytes, want %d", m.Len(), len(want))
		}
		m.Release()
	}
	roundTrip(t, p)

	// A reply for which there is no memory is lost, and its call says so.
	served := background(func() error {
		m, err := p.server.Recv(ctx)
		if err == nil {
			m.Release()
			err = m.Reply(ctx, make([]byte, 2*long))
		}
		return err
	})
	p.here.SetLimits(verbstest.Limits{Memlock: 1})
	_, err = p.client.Call(ctx, []byte("x"))
	isError(t, err, uverbs.ErrMemlock)
	p.here.SetLimits(verbstest.Limits{})
	check(t, <-served)
	roundTrip(t, p)
}

// TestNoWindow checks that a message that cannot be offered is not sent, and that the connection stays usable.
func TestNoWindow(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	b := must(p.client.Alloc(10000))(t)
	p.here.FailCommand(1, unix.ENOMEM)
	isError(t, p.client.SendBuffer(ctx, b), unix.ENOMEM)
	check(t, p.client.SendBuffer(ctx, b))
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	roundTrip(t, p)
}

// TestOptionsOutOfRange checks the limits of Options.
func TestOptionsOutOfRange(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	for name, c := range map[string]struct {
		o    rdma.Options
		want error
	}{
		"Depth below":       {rdma.Options{Depth: -1}, uverbs.ErrInvalid},
		"Depth above":       {rdma.Options{Depth: 2049}, uverbs.ErrInvalid},
		"EagerSize below":   {rdma.Options{EagerSize: 255}, uverbs.ErrInvalid},
		"EagerSize above":   {rdma.Options{EagerSize: 1<<20 + 1}, uverbs.ErrInvalid},
		"MaxMessage below":  {rdma.Options{MaxMessage: 4095}, uverbs.ErrInvalid},
		"MaxMessage above":  {rdma.Options{MaxMessage: 1<<30 + 1}, uverbs.ErrInvalid},
		"Offers above":      {rdma.Options{Offers: 33}, uverbs.ErrInvalid},
		"PrivateData above": {rdma.Options{PrivateData: make([]byte, 141)}, rdma.ErrTooLong},
	} {
		p.onClient(func() {
			_, err := rdma.Dial(ctx, "192.0.2.2:7471", &c.o)
			if !errors.Is(err, c.want) {
				t.Errorf("%s: Dial returns %v", name, err)
			}
			_, err = rdma.Listen(":7471", listening(&c.o))
			if !errors.Is(err, c.want) {
				t.Errorf("%s: Listen returns %v", name, err)
			}
		})
	}
	p.onClient(func() {
		_, err := rdma.Dial(ctx, "192.0.2.2:7471", &rdma.Options{PrivateData: make([]byte, 25)})
		isError(t, err, rdma.ErrTooLong)
	})
}

// TestLargestOptions connects with the largest and the smallest options, and checks the private data.
func TestLargestOptions(t *testing.T) {
	large := &rdma.Options{Depth: 2048, EagerSize: 4096, MaxMessage: 1 << 30, Offers: 32, PrivateData: pattern(24, 1)}
	small := &rdma.Options{Depth: 1, EagerSize: 256, MaxMessage: 20000, Offers: 1, PrivateData: pattern(140, 2)}
	p := connect(t, large, small)
	if !bytes.Equal(p.client.PrivateData(), small.PrivateData) || !bytes.Equal(p.server.PrivateData(), large.PrivateData) {
		t.Error("other private data")
	}
	roundTrip(t, p)
	none := connect(t, nil, nil)
	if len(none.client.PrivateData()) != 0 || len(none.server.PrivateData()) != 0 {
		t.Error("private data that nobody has set")
	}
}

// TestPlainPeers checks that both sides refuse a peer that does not use this package.
func TestPlainPeers(t *testing.T) {
	p := machines(t)
	ctx := limit(t)
	var refused atomic.Int32
	var l *rdma.Listener
	p.onServer(func() {
		l = must(rdma.Listen(":7471", &rdma.ListenOptions{Refused: func(peer netip.AddrPort, err error) {
			if peer.Addr() != p.here.Addr() || !errors.Is(err, rdma.ErrProtocol) {
				t.Errorf("%v: %v", peer, err)
			}
			refused.Add(1)
		}}))(t)
	})
	var accepted <-chan error
	p.onServer(func() {
		accepted = background(func() error {
			c, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			return c.Close()
		})
	})
	p.onClient(func() {
		for _, data := range [][]byte{nil, []byte("gRDM"), append([]byte("gRDM\x02"), make([]byte, 17)...)} {
			if c, err := cm.Dial(ctx, p.addr(l), &cm.Options{PrivateData: data}); err == nil {
				t.Error("a peer that does not use this package is accepted")
				check(t, c.Close())
			} else {
				isError(t, err, cm.ErrRejected)
			}
		}
		c := must(rdma.Dial(ctx, p.addr(l), nil))(t) // the next one is accepted
		check(t, <-accepted)
		check(t, c.Close())
	})
	check(t, l.Close()) // waits for the handshakes
	if refused.Load() != 3 {
		t.Errorf("%d peers are refused", refused.Load())
	}

	p.onServer(func() {
		plain := must(cm.Listen(":7471", nil))(t)
		done := background(func() error {
			c, err := plain.Accept(ctx)
			if err != nil {
				return err
			}
			return c.Close()
		})
		p.onClient(func() {
			_, err := rdma.Dial(ctx, p.there.AddrPort(7471).String(), nil)
			isError(t, err, rdma.ErrProtocol)
		})
		check(t, <-done)
		check(t, plain.Close())
	})
}

// TestPortDown checks that a connection survives a port that is down for less than its retries take, and that its end
// has a cause otherwise.
func TestPortDown(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, &rdma.Options{KeepAlive: 5 * time.Millisecond}, &rdma.Options{Linger: -1})
	ctx := limit(t)
	p.here.SetPort(false)
	sent := background(func() error { return p.client.Send(ctx, make([]byte, 1000)) })
	p.here.SetPort(true)
	check(t, <-sent)
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	p.here.SetPort(false)
	received := background(func() error { _, err := p.client.Recv(ctx); return err })
	err := within(t, received, "Recv")
	isError(t, err, rdma.ErrDisconnected)
	isError(t, err, uverbs.WCRetryExcErr)
}

// TestMemoryLimitAtEnd checks that a message for which there is no memory is not lost if the peer closes the
// connection.
func TestMemoryLimitAtEnd(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	p.there.SetLimits(verbstest.Limits{Memlock: 1})
	check(t, p.client.Send(ctx, []byte("short")))
	check(t, p.client.Send(ctx, pattern(4<<20, 1)))
	closed := background(func() error { return p.client.Shutdown(ctx) })
	until(t, "it is being closed", func() bool { return isClosing(p.client) })
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	for range 3 {
		_, err := p.server.Recv(ctx)
		isError(t, err, uverbs.ErrMemlock)
	}
	p.there.SetLimits(verbstest.Limits{})
	m = must(p.server.Recv(ctx))(t)
	if !bytes.Equal(m.Bytes(), pattern(4<<20, 1)) {
		t.Errorf("another message of %d bytes", m.Len())
	}
	m.Release()
	_, err := p.server.Recv(ctx)
	if err != io.EOF {
		t.Errorf("%v, want io.EOF", err)
	}
	check(t, within(t, closed, "Shutdown"))
}
