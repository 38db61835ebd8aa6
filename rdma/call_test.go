package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestReplyThenClose checks that a call gets the reply that the peer has sent before it closed the connection.
func TestReplyThenClose(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 128, 3000, 100000, 2 << 20} {
		p := connect(t, nil, nil)
		ctx := limit(t)
		served := background(func() error {
			m, err := p.server.Recv(ctx)
			if err != nil {
				return err
			}
			m.Release()
			return errors.Join(m.Reply(ctx, pattern(n, 5)), p.server.Close())
		})
		m, err := p.client.Call(ctx, []byte("x"))
		if err != nil {
			t.Errorf("reply of %d bytes: %v", n, err)
		} else if !bytes.Equal(m.Bytes(), pattern(n, 5)) {
			t.Errorf("reply of %d bytes: another", n)
		}
		m.Release()
		check(t, p.client.Close())
		check(t, <-served)
	}
}

// TestLongReplyWithoutRoom checks that a call reads a long reply that arrives while the send queue is full, although
// another call polls from then on.
func TestLongReplyWithoutRoom(t *testing.T) {
	p := machines(t)
	p.net.SetTimeouts(verbstest.Timeouts{Ack: 13})
	p.dial(t, nil, nil)
	ctx := limit(t)
	_, s := p.share(t, 4096, rdma.CanRead)
	check(t, p.server.Send(ctx, nil))
	poll := background(func() error {
		m, err := p.client.Recv(ctx)
		if err == nil {
			m.Release()
			_, err = p.client.Recv(ctx)
		}
		return err
	})
	until(t, "Recv returns", func() bool { return p.client.Stats().Received > 0 }) // and is called again: it polls
	called := background(func() error {
		m, err := p.client.Call(ctx, []byte("x"))
		if err == nil && !bytes.Equal(m.Bytes(), pattern(100000, 1)) {
			err = errors.New("another reply")
		}
		m.Release()
		return err
	})
	asked := must(p.server.Recv(ctx))(t)
	asked.Release()
	lost := p.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, To: p.here})
	const reads = 400 // more than the queue has room for
	b := must(p.client.Alloc(8))(t)
	batch := p.client.NewBatch()
	for range reads {
		batch.Read(b, s.Token(), 0)
	}
	done := background(func() error { return batch.Do(ctx) })
	until(t, "the queue is full", func() bool { return p.client.Stats().Operations > 0 })
	lost()
	check(t, asked.Reply(ctx, pattern(100000, 1)))
	check(t, within(t, done, "the batch"))
	check(t, within(t, called, "Call"))
	if n := p.client.Stats().Operations; n != reads {
		t.Errorf("%d operations", n)
	}
	b.Release()
	check(t, p.client.Close())
	isError(t, within(t, poll, "Recv"), net.ErrClosed)
}

// echo sends messages and calls back until the connection ends.
func echo(ctx context.Context, t *testing.T, c *rdma.Conn) {
	for {
		m, err := c.Recv(ctx)
		if ended(t, err) {
			return
		}
		if m.IsCall() {
			ended(t, m.Reply(ctx, m.Bytes()))
		} else {
			ended(t, c.Send(ctx, m.Bytes()))
		}
		m.Release()
	}
}

// TestAbandonedCalls checks that calls whose contexts have ended keep their numbers until the peer replies, so that no
// call gets the reply to another, and that their replies make the numbers available, of any length.
func TestAbandonedCalls(t *testing.T) {
	t.Parallel()
	const most = 1024
	p := connect(t, nil, &rdma.Options{Depth: most + 8})
	ctx := limit(t)
	canceled, cancel := context.WithCancel(ctx)
	calls := make(chan error, most)
	var asked []rdma.Message
	for i := range most {
		go func() { _, err := p.client.Call(canceled, numbered(i, 8)); calls <- err }()
		m := must(p.server.Recv(ctx))(t)
		m.Release()
		asked = append(asked, m)
	}
	cancel()
	for range most {
		isError(t, <-calls, context.Canceled)
	}
	next := background(func() error {
		m, err := p.client.Call(ctx, []byte("next"))
		if err == nil && string(m.Bytes()) != "reply" {
			err = errors.New("another reply")
		}
		m.Release()
		return err
	})
	for i, m := range asked {
		check(t, m.Reply(ctx, pattern([]int{0, 1000, 10000}[i%3], i)))
		isError(t, m.Reply(ctx, nil), rdma.ErrNotCall)
	}
	m := must(p.server.Recv(ctx))(t)
	check(t, m.Reply(ctx, []byte("reply")))
	m.Release()
	check(t, within(t, next, "the next call"))
	roundTrip(t, p)
}

// TestReplyTwice replies to one call from many goroutines: one succeeds.
func TestReplyTwice(t *testing.T) {
	p := connect(t, nil, nil)
	ctx := limit(t)
	for i := range 50 {
		called := background(func() error {
			m, err := p.client.Call(ctx, nil)
			m.Release()
			return err
		})
		m := must(p.server.Recv(ctx))(t)
		m.Release()
		var replies []<-chan error
		for range 4 {
			replies = append(replies, background(func() error { return m.Reply(ctx, make([]byte, i*200)) }))
		}
		good := 0
		for _, r := range replies {
			if err := <-r; err == nil {
				good++
			} else {
				isError(t, err, rdma.ErrNotCall)
			}
		}
		if good != 1 {
			t.Errorf("%d replies to a call", good)
		}
		check(t, within(t, called, "Call"))
	}
}

// TestReplyAgain checks that a reply that could not be sent can be sent later.
func TestReplyAgain(t *testing.T) {
	p := connect(t, &rdma.Options{MaxMessage: 20000}, nil)
	ctx := limit(t)
	called := background(func() error {
		m, err := p.client.Call(ctx, nil)
		if err == nil && m.Len() != 20000 {
			err = errors.New("another reply")
		}
		m.Release()
		return err
	})
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	isError(t, m.Reply(ctx, make([]byte, 20001)), rdma.ErrTooLong)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	isError(t, m.Reply(ended, nil), context.Canceled)
	check(t, m.Reply(ctx, make([]byte, 20000)))
	check(t, within(t, called, "Call"))
}
