package rdma_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestCloseDelivers checks that the peer gets everything that was sent before Close, and then io.EOF.
func TestCloseDelivers(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	const messages = 8
	for i := range messages {
		check(t, p.client.Send(ctx, numbered(i, []int{20, 3000, 200000, 60000}[i%4])))
	}
	closed := make(chan error, 1)
	go func() { closed <- p.client.Close() }()
	for i := range messages {
		m := must(p.server.Recv(ctx))(t)
		if string(m.Bytes()) != string(numbered(i, []int{20, 3000, 200000, 60000}[i%4])) {
			t.Errorf("message %d is another", i)
		}
		m.Release()
	}
	for range 2 {
		if _, err := p.server.Recv(ctx); err != io.EOF {
			t.Errorf("%v, want io.EOF", err)
		}
	}
	check(t, <-closed)
	for _, err := range []error{p.server.Send(ctx, []byte("x")), p.server.Err()} {
		isError(t, err, rdma.ErrDisconnected)
	}
	err := p.client.Send(ctx, nil)
	isError(t, err, net.ErrClosed)
	if text := err.Error(); !strings.Contains(text, "send to "+p.client.RemoteAddr().String()) {
		t.Errorf("%q does not name the operation and the peer", text)
	}
	isError(t, p.client.Err(), net.ErrClosed)
	check(t, p.client.Close())
}

// TestCloseWithLongMessage checks that Close does not wait for Options.Linger, although the program has not released a
// long message.
func TestCloseWithLongMessage(t *testing.T) {
	o := &rdma.Options{Linger: time.Minute}
	p := connect(t, o, o)
	ctx := limit(t)
	check(t, p.server.Send(ctx, pattern(100000, 1)))
	m := must(p.client.Recv(ctx))(t)
	check(t, within(t, background(p.client.Close), "Close"))
	if !bytes.Equal(m.Bytes(), pattern(100000, 1)) {
		t.Error("another message")
	}
	m.Release()
}

// TestCloseEndsCalls checks that Close ends the calls of this side, and those of the peer.
func TestCloseEndsCalls(t *testing.T) {
	p := connect(t, &rdma.Options{Linger: -1}, nil)
	ctx := limit(t)
	here, there := make(chan error, 9), make(chan error, 9)
	for range 3 {
		go func() {
			m, err := p.client.Recv(ctx)
			m.Release()
			here <- err
		}()
		go func() { _, err := p.client.Call(ctx, []byte("x")); here <- err }()
		go func() { _, err := p.server.Call(ctx, []byte("x")); there <- err }()
	}
	for range 3 { // the calls have arrived
		m := must(p.server.Recv(ctx))(t)
		m.Release()
	}
	check(t, p.client.Close())
	for range 6 {
		if err := <-here; err != nil { // a Recv may have got a call
			isError(t, err, net.ErrClosed)
		}
	}
	for range 3 {
		isError(t, <-there, rdma.ErrDisconnected)
	}
}

// TestCloseBoth closes both sides at once, with messages on their way.
func TestCloseBoth(t *testing.T) {
	for range 20 {
		p := connect(t, nil, nil)
		ctx := limit(t)
		for range 3 {
			check(t, p.client.Send(ctx, pattern(100, 0)))
			check(t, p.server.Send(ctx, pattern(100, 0)))
		}
		closed := make(chan error, 2)
		go func() { closed <- p.client.Close() }()
		go func() { closed <- p.server.Close() }()
		mayLose(t, <-closed)
		mayLose(t, <-closed)
	}
}

// TestCloseBothAtOnce checks that Close does not wait for acknowledgements of a peer that has closed its side. They
// would come within a moment, or, as package cm waits for them for 200 ms, in vain.
func TestCloseBothAtOnce(t *testing.T) {
	var times []time.Duration
	for range 10 {
		p := connect(t, nil, nil)
		began := time.Now()
		var closing sync.WaitGroup
		for _, c := range []*rdma.Conn{p.client, p.server} {
			closing.Go(func() { check(t, c.Close()) })
		}
		closing.Wait()
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	if median := times[len(times)/2]; median >= 200*time.Millisecond {
		t.Errorf("the median time to close both sides is %v", median)
	}
}

// TestShutdown checks that Shutdown returns within its context if the peer does not take a message.
func TestShutdown(t *testing.T) {
	p := connect(t, nil, nil)
	check(t, p.client.Send(limit(t), pattern(100000, 0)))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	isError(t, p.client.Shutdown(ctx), context.DeadlineExceeded)
	isError(t, p.client.Err(), net.ErrClosed)
}

// TestLostPeer checks that a waiting receiver notices that its peer has lost power.
func TestLostPeer(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, &rdma.Options{KeepAlive: 10 * time.Millisecond}, &rdma.Options{Linger: -1})
	p.allow(verbstest.Destination)
	ctx := limit(t)
	received := make(chan error, 1)
	go func() { _, err := p.client.Recv(ctx); received <- err }()
	p.there.Kill()
	err := <-received
	isError(t, err, rdma.ErrDisconnected)
	isError(t, err, uverbs.WCRetryExcErr)
	isError(t, p.client.Send(ctx, nil), rdma.ErrDisconnected)
}

// TestRemovedDevice checks that calls end when the device is removed.
func TestRemovedDevice(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Linger: -1})
	ctx := limit(t)
	ends := make(chan error, 2)
	go func() { _, err := p.client.Recv(ctx); ends <- err }()
	go func() { _, err := p.client.Call(ctx, []byte("x")); ends <- err }()
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	p.here.RemoveDevice()
	for range 2 {
		err := <-ends
		isError(t, err, rdma.ErrDisconnected)
		isError(t, err, uverbs.ErrDeviceGone)
	}
}

// TestPacketLoss checks that nothing is lost or mixed up if packets are.
func TestPacketLoss(t *testing.T) {
	t.Parallel()
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, nil, nil)
	p.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.01})
	ctx := limit(t)
	const messages = 30
	errs := make(chan error, 1)
	go func() {
		for range messages {
			m, err := p.server.Recv(ctx)
			if err == nil {
				err = m.Reply(ctx, m.Bytes())
				m.Release()
			}
			if err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for i := range messages {
		b := numbered(i, []int{30, 2000, 20000}[i%3])
		m := must(p.client.Call(ctx, b))(t)
		if string(m.Bytes()) != string(b) {
			t.Errorf("message %d is another", i)
		}
		m.Release()
	}
	check(t, <-errs)
}
