package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestFlush checks that Flush waits until the peer has messages of all lengths, after which their memory may be
// changed, and for nothing else.
func TestFlush(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	check(t, p.client.Flush(ctx))
	r := rdma.NewRegion(200000)
	for i, n := range []int{0, 100, 3000, 5000, 200000} {
		copy(r.Bytes(), pattern(n, i))
		check(t, p.client.SendBuffer(ctx, must(p.client.BufferOf(r, 0, n))(t)))
		if n > 4096 {
			short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			isError(t, p.client.Flush(short), context.DeadlineExceeded) // the peer has not received it
			cancel()
		}
		received := make(chan rdma.Message, 1)
		go func() {
			m, err := p.server.Recv(ctx)
			if err == nil {
				m.Release()
				m, err = p.server.Recv(ctx) // of this function
			}
			if err != nil {
				t.Error(err)
			}
			received <- m
		}()
		for range 2 {
			check(t, p.client.Flush(ctx))
		}
		clear(r.Bytes())
		check(t, p.client.Send(ctx, nil))
		m := <-received
		m.Release()
	}
	check(t, r.Close())
}

// TestFlushChanges changes memory after each Flush: the peer has what it was before.
func TestFlushChanges(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	const rounds = 50
	received := background(func() error {
		for i := range rounds {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return err
			}
			if !bytes.Equal(m.Bytes(), pattern(m.Len(), i)) {
				t.Errorf("message %d of %d bytes is another", i, m.Len())
			}
			m.Release()
		}
		_, err := p.server.Recv(ctx) // releases what was read
		if !errors.Is(err, rdma.ErrDisconnected) && err.Error() != "EOF" {
			return err
		}
		return nil
	})
	r := rdma.NewRegion(100000)
	for i := range rounds {
		n := []int{100, 4000, 10000, 100000}[i%4]
		copy(r.Bytes(), pattern(n, i))
		check(t, p.client.SendBuffer(ctx, must(p.client.BufferOf(r, 0, n))(t)))
		check(t, p.client.Flush(ctx))
	}
	check(t, r.Close()) // nothing is being sent
	check(t, p.client.Close())
	check(t, within(t, received, "Recv"))
}

// TestFlushShort checks that Flush waits for a short message, and that a Flush whose context ends leaves a usable
// connection.
func TestFlushShort(t *testing.T) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	p.dial(t, nil, nil)
	ctx := limit(t)
	heal := p.net.Partition(p.here, p.there)
	check(t, p.client.Send(ctx, pattern(1000, 1)))
	for range 3 {
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		isError(t, p.client.Flush(short), context.DeadlineExceeded)
		cancel()
	}
	heal()
	check(t, p.client.Flush(ctx))
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	roundTrip(t, p)
}

// TestFlushRace has many goroutines send and flush while others end.
func TestFlushRace(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	go drain(ctx, p.server)
	var users sync.WaitGroup
	for i := range 8 {
		users.Go(func() {
			r := rdma.NewRegion(50000)
			for k := range 20 {
				b, err := p.client.BufferOf(r, 0, []int{10, 5000, 50000}[(i+k)%3])
				if err == nil {
					err = p.client.SendBuffer(ctx, b)
				}
				if err == nil && k%4 == 0 {
					short, cancel := context.WithTimeout(ctx, time.Microsecond<<(k%16))
					_ = p.client.Flush(short) // its context may end
					cancel()
				}
				if err == nil {
					err = p.client.Flush(ctx)
				}
				if err == nil && k%5 == 4 {
					err = r.Close()
					r = rdma.NewRegion(50000)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	users.Wait()
}

// TestFlushEnds checks the errors of Flush when the connection ends.
func TestFlushEnds(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Linger: -1})
	ctx := limit(t)
	check(t, p.client.Send(ctx, make([]byte, 100000)))
	flushed := background(func() error { return p.client.Flush(ctx) })
	mayLose(t, p.server.Close())
	isError(t, within(t, flushed, "Flush"), rdma.ErrDisconnected)
	isError(t, p.client.Flush(ctx), rdma.ErrDisconnected)
	q := connect(t, &rdma.Options{Linger: -1}, nil)
	check(t, q.client.Send(ctx, make([]byte, 100000)))
	flushed = background(func() error { return q.client.Flush(ctx) })
	mayLose(t, q.client.Close())
	isError(t, within(t, flushed, "Flush"), net.ErrClosed)
	isError(t, q.client.Flush(ctx), net.ErrClosed)
}

// TestFlushPeerClosed checks that Flush returns nil if the peer has closed the connection after it received everything.
func TestFlushPeerClosed(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	r := rdma.NewRegion(100000)
	check(t, p.client.SendBuffer(ctx, must(p.client.BufferOf(r, 0, 100000))(t)))
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	closed := background(p.server.Close)
	_, err := p.client.Recv(ctx)
	isError(t, err, io.EOF)
	check(t, p.client.Flush(ctx))
	check(t, p.client.Close())
	check(t, within(t, closed, "Close"))
	isError(t, p.client.Flush(ctx), net.ErrClosed)
	check(t, r.Close())
}
