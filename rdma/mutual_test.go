package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// TestMutualCalls has both sides call each other from many goroutines, and reply from the goroutine that receives. A
// reply that waited for the goroutine that receives on the other side would wait forever.
func TestMutualCalls(t *testing.T) {
	t.Parallel()
	for _, depth := range []int{1, 2, 5, 32} {
		for _, lossy := range []bool{false, true} {
			if lossy && onKernel {
				continue
			}
			t.Run(fmt.Sprintf("depth %d, lossy %v", depth, lossy), func(t *testing.T) {
				t.Parallel()
				o := rdma.Options{Depth: depth, Offers: 1 + depth/4, EagerSize: 1024}
				mutualCalls(t, &o, lossy)
			})
		}
	}
}

func mutualCalls(t *testing.T, o *rdma.Options, lossy bool) {
	p := machines(t)
	if p.net != nil {
		// With 12, eight tries end after 134 ms, in which a loaded machine may not run the other side.
		p.net.SetTimeouts(verbstest.Timeouts{Ack: 14})
	}
	p.dial(t, o, o)
	if lossy {
		p.net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.02})
		p.net.AddFault(verbstest.PacketFault{Action: verbstest.Reorder, Probability: 0.05})
	}
	ctx := limit(t)
	var serve []<-chan error
	var callers sync.WaitGroup
	for _, c := range []*rdma.Conn{p.client, p.server} {
		serve = append(serve, background(func() error {
			return c.ServeCalls(ctx, func(request []byte) []byte { return request })
		}))
		for k := range 12 {
			callers.Go(func() {
				if err := callMany(ctx, c, k); err != nil {
					t.Error(err)
				}
			})
		}
	}
	callers.Wait()
	check(t, p.client.Close())
	check(t, within(t, serve[1], "ServeCalls of the server"))
	isError(t, within(t, serve[0], "ServeCalls of the client"), net.ErrClosed)
}

// callMany calls with messages of all kinds, short and long, and sometimes holds a reply during another call. An
// emulated kernel has all kinds twice; in memory there are more.
func callMany(ctx context.Context, c *rdma.Conn, k int) error {
	rounds := 30
	if onKernel {
		rounds = 10
	}
	for i := range rounds {
		want := numbered(k*1000+i, []int{8, 600, 5000, 200, 1024}[(i+k)%5])
		m, err := c.Call(ctx, want)
		if err != nil {
			return err
		}
		if i%3 == 0 {
			nested, err := c.Call(ctx, m.Bytes())
			if err != nil {
				return err
			}
			if !bytes.Equal(nested.Bytes(), want) {
				return errors.New("another reply to the second call")
			}
			nested.Release()
		}
		if !bytes.Equal(m.Bytes(), want) {
			return errors.New("another reply")
		}
		m.Release()
	}
	return nil
}

// TestLongReplyBesideMessages checks that a long reply does not wait for long messages that the peer's program has not
// received, and a short one not for short messages.
func TestLongReplyBesideMessages(t *testing.T) {
	for _, n := range []int{100, 3000, 300000} {
		o := &rdma.Options{Depth: 2, Offers: 1}
		p := connect(t, o, o)
		ctx := limit(t)
		messages := 2
		if n > 4096 {
			messages = 1
		}
		for i := range messages { // further ones would wait
			check(t, p.server.Send(ctx, numbered(i, n)))
		}
		called := background(func() error {
			for i := range 10 {
				m, err := p.client.Call(ctx, numbered(i, 8))
				if err == nil && !bytes.Equal(m.Bytes(), numbered(i, n)) {
					err = errors.New("another reply")
				}
				m.Release()
				if err != nil {
					return err
				}
			}
			return nil
		})
		for i := range 10 {
			m := must(p.server.Recv(ctx))(t)
			check(t, within(t, background(func() error { return m.Reply(ctx, numbered(i, n)) }), "Reply"))
			m.Release()
		}
		check(t, within(t, called, "Call"))
		for i := range messages {
			m := must(p.client.Recv(ctx))(t)
			if !bytes.Equal(m.Bytes(), numbered(i, n)) {
				t.Error("another message")
			}
			m.Release()
		}
	}
}

// TestHeldReplies checks that replies arrive although the program holds many more than there are receives for, and that
// held ones stay as they are.
func TestHeldReplies(t *testing.T) {
	for _, depth := range []int{1, 3, 100} {
		p := connect(t, &rdma.Options{Depth: depth}, &rdma.Options{Depth: depth})
		ctx := limit(t)
		serve := background(func() error {
			return p.server.ServeCalls(ctx, func(request []byte) []byte { return request })
		})
		const calls = 300
		var held []rdma.Message
		for i := range calls {
			held = append(held, must(p.client.Call(ctx, numbered(i, []int{8, 500, 4096, 5000}[i%4])))(t))
		}
		for i, m := range held {
			if !bytes.Equal(m.Bytes(), numbered(i, []int{8, 500, 4096, 5000}[i%4])) {
				t.Errorf("depth %d: reply %d is another", depth, i)
			}
			m.Release()
		}
		check(t, p.client.Close())
		check(t, within(t, serve, "ServeCalls"))
	}
}

// TestAllMessagesHeld checks that a program can hold as many messages as Options.Depth says, also after it has released
// one of the first.
func TestAllMessagesHeld(t *testing.T) {
	p := connect(t, nil, &rdma.Options{Depth: 4})
	ctx := limit(t)
	check(t, p.client.Send(ctx, nil))
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	sent := background(func() error {
		for i := range 4 {
			if err := p.client.Send(ctx, numbered(i, 8)); err != nil {
				return err
			}
		}
		return nil
	})
	for range 4 {
		var m rdma.Message
		check(t, within(t, background(func() (err error) { m, err = p.server.Recv(ctx); return err }), "Recv"))
		defer m.Release()
	}
	check(t, within(t, sent, "Send"))
}

// TestNumbersUsedUp checks that a call that finds all numbers used by calls that have no reply waits for its context,
// and that the error says so.
func TestNumbersUsedUp(t *testing.T) {
	t.Parallel()
	const most = 1024
	p := connect(t, &rdma.Options{Linger: -1}, &rdma.Options{Depth: most})
	ctx := limit(t)
	canceled, cancel := context.WithCancel(ctx)
	calls := make(chan error, most)
	for range most {
		go func() { _, err := p.client.Call(canceled, nil); calls <- err }()
	}
	for range most {
		m := must(p.server.Recv(ctx))(t)
		m.Release()
	}
	cancel()
	for range most {
		isError(t, <-calls, context.Canceled)
	}
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	called := background(func() error { _, err := p.client.Call(short, nil); return err })
	check(t, p.client.Send(ctx, nil)) // other messages need no number
	m := must(p.server.Recv(ctx))(t)
	m.Release()
	cancel()
	err := within(t, called, "Call")
	isError(t, err, context.Canceled)
	if want := "has not replied to 1024 calls, of which 1024 "; !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// TestManyReplies checks that many more calls than there are receives for replies get theirs, although the callers send
// nothing further.
func TestManyReplies(t *testing.T) {
	const calls = 300
	for _, depth := range []int{1, 5, 32, 200} {
		p := connect(t, &rdma.Options{Depth: depth}, &rdma.Options{Depth: calls})
		ctx := limit(t)
		called := make(chan error, calls)
		for range calls {
			go func() {
				m, err := p.client.Call(ctx, nil)
				m.Release()
				called <- err
			}()
		}
		var asked []rdma.Message
		for range calls {
			m := must(p.server.Recv(ctx))(t)
			m.Release()
			asked = append(asked, m)
		}
		replied := background(func() error {
			for _, m := range asked {
				if err := m.Reply(ctx, nil); err != nil {
					return err
				}
			}
			return nil
		})
		check(t, within(t, replied, "Reply"))
		for range calls {
			check(t, within(t, called, "Call"))
		}
	}
}
