package rdma

import (
	"bytes"
	"context"
	"errors"
	"net"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// handledBy runs Handle, and returns where its error arrives.
func handledBy(ctx context.Context, c *Conn, handler Handler, handlers int) <-chan error {
	handled := make(chan error, 1)
	go func() { handled <- c.Handle(ctx, handler, &HandleOptions{MaxHandlers: handlers}) }()
	return handled
}

// eventually waits until ok, which is called with c.mu held, returns true.
func eventually(t *testing.T, ctx context.Context, c *Conn, what string, ok func() bool) {
	t.Helper()
	for done := false; !done; <-time.After(time.Millisecond) {
		c.mu.Lock()
		done = ok()
		c.unlock()
		if ctx.Err() != nil {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// arrive returns when n messages of a peer have arrived, which no call receives.
func arrive(t *testing.T, h *hostile, c *Conn, n int) {
	t.Helper()
	eventually(t, h.ctx, c, "messages arrive", func() bool { c.look(); return c.count >= n })
}

// calls sends a call, and credits for replies.
func (h *hostile) call(number, replies int) {
	h.post(uverbs.OpSendImm, packImm(kindCall, credits{replies: replies}, number), nil)
}

// TestHandleEndedContext checks that no handler begins when the context of Handle has ended.
func TestHandleEndedContext(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	h.call(0, 4)
	h.send(kindMessage, 0, 0, nil)
	arrive(t, h, c, 2)
	ctx, cancel := context.WithCancel(h.ctx)
	cancel()
	err := c.Handle(ctx, func(context.Context, *Request) ([]byte, error) {
		t.Error("a handler begins")
		return nil, nil
	}, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Handle returns %v", err)
	}
}

// TestHandleGivenUp checks that no handler begins for a call that was canceled, or whose deadline has passed.
func TestHandleGivenUp(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	began, release := make(chan struct{}, 4), make(chan struct{})
	handled := handledBy(h.ctx, c, func(context.Context, *Request) ([]byte, error) {
		began <- struct{}{}
		<-release
		return nil, nil
	}, 1)
	h.call(0, 4)
	<-began
	h.call(1, 0)
	h.send(kindCallTrailer, 0, 2, trailed("", field(fieldTimeout, 1, 0, 0, 0, 0, 0, 0, 0)))
	h.send(kindCancel, 0, 1, nil)
	eventually(t, h.ctx, c, "the cancel arrives", func() bool { return c.count == 2 && c.calls.asked[1].canceled })
	close(release)
	for got := 0; got < 3; {
		k, number, body := h.recv()
		if k.base() != kindReply {
			continue // credits
		}
		got++
		want := []Code{0, CodeCanceled, CodeDeadlineExceeded}[number]
		if number == 0 {
			if k != kindReply {
				t.Errorf("the first call gets kind %d", k)
			}
			continue
		}
		if _, read, err := cutTrailer(body); k != kindError || err != nil || Code(read.code) != want {
			t.Errorf("call %d gets kind %d, %q, %v", number, k, body, err)
		}
	}
	if n := len(began); n > 0 {
		t.Errorf("%d handlers have begun for nobody", n)
	}
	h.end(farewell{})
	if err := <-handled; err != nil {
		t.Error(err)
	}
}

// TestHandleHooks checks that the peer is disconnected and Trace.Ended called at once when the connection fails, while
// handlers run and further calls wait for them. When a handler has returned, the next begins.
func TestHandleHooks(t *testing.T) {
	for _, messages := range []int{1, 2} {
		ended := make(chan error, 1)
		o := &Options{Trace: &Trace{Ended: func(_ *Conn, err error) { ended <- err }}}
		c, h := hostilePair(t, o, honestHello())
		began, release := make(chan struct{}, 2), make(chan struct{})
		handled := handledBy(h.ctx, c, func(context.Context, *Request) ([]byte, error) {
			began <- struct{}{}
			<-release
			return nil, nil
		}, 1)
		for range messages {
			h.send(kindMessage, 0, 0, nil)
		}
		<-began
		h.send(kindTaken, 0, 0, nil)
		select {
		case err := <-ended:
			if !errors.Is(err, ErrProtocol) {
				t.Errorf("the connection has ended: %v", err)
			}
		case <-h.ctx.Done():
			t.Errorf("%d messages: Trace.Ended is not called", messages)
		}
		close(release)
		if err := <-handled; !errors.Is(err, ErrProtocol) {
			t.Errorf("Handle returns %v", err)
		}
		if n := len(began); n != messages-1 {
			t.Errorf("%d further handlers have begun, want %d", n, messages-1)
		}
	}
}

// TestHandleHooksContext checks that Handle returns when its context ends while messages of a connection that has
// ended wait for handlers.
func TestHandleHooksContext(t *testing.T) {
	c, h := hostilePair(t, nil, honestHello())
	began, release := make(chan struct{}, 2), make(chan struct{})
	ctx, cancel := context.WithCancel(h.ctx)
	handled := handledBy(ctx, c, func(context.Context, *Request) ([]byte, error) {
		began <- struct{}{}
		<-release
		return nil, nil
	}, 1)
	h.send(kindMessage, 0, 0, nil)
	h.send(kindMessage, 0, 0, nil)
	<-began
	h.send(kindTaken, 0, 0, nil)
	eventually(t, h.ctx, c, "the connection ends", func() bool { return c.err != nil })
	cancel()
	close(release)
	if err := <-handled; !errors.Is(err, context.Canceled) {
		t.Errorf("Handle returns %v", err)
	}
	if n := len(began); n > 0 {
		t.Errorf("%d handlers have begun after the end of the context", n)
	}
}

// TestHandleNoMemoryAtEnd checks that Handle tries once to register memory for a long message of a peer that has sent
// its end: it returns the error if the message is not a call, and drops a call, whose caller has returned.
func TestHandleNoMemoryAtEnd(t *testing.T) {
	for k, want := range map[kind]error{kindMessage: unix.ENOMEM, kindCall: nil} {
		n := verbstest.NewNetwork(t)
		n.Allow(verbstest.NotReleased)
		honest, other := n.Machine(), n.Machine()
		c, h := hostileOn(t, honest, other, nil, honestHello())
		h.offer(offer{kind: k, length: 1 << 20}, 0)
		h.end(farewell{})
		arrive(t, h, c, 1)
		eventually(t, h.ctx, c, "the end arrives", func() bool { c.look(); return c.eof })
		honest.Refuse("REG_MR", unix.ENOMEM)
		before := honest.Commands()
		if err := c.Handle(h.ctx, nil, nil); !errors.Is(err, want) {
			t.Errorf("kind %d: Handle returns %v, want %v", k, err, want)
		}
		if n := honest.Commands() - before; n > 10 {
			t.Errorf("kind %d: %d commands", k, n)
		}
		honest.Refuse("REG_MR", 0)
	}
}

// TestHandleReadsWhileFull checks that long messages are read while as many handlers run as may, up to Options.Offers
// of them: otherwise shorter ones would always be complete before them.
func TestHandleReadsWhileFull(t *testing.T) {
	n := verbstest.NewNetwork(t)
	server, client := n.Machine(), n.Machine()
	l, accepted := accepting(t, server, &ListenOptions{Options: Options{Offers: 2}})
	c, err := dialTo(t, client, server, l)
	good(t, c, err)
	s, ctx := <-accepted, bounded(t)
	began, release := make(chan int, 16), make(chan struct{})
	handled := handledBy(ctx, s, func(_ context.Context, r *Request) ([]byte, error) {
		began <- r.Len()
		<-release
		return nil, nil
	}, 1)
	returned := make(chan error, 16)
	call := func(n int) {
		m, err := c.Call(ctx, make([]byte, n))
		if err == nil {
			m.Release()
		}
		returned <- err
	}
	go call(1)
	<-began
	for range 4 {
		go call(2 << 20)
	}
	read := func() (n int) {
		for i := range s.count {
			if in := s.arrived[(s.first+i)%len(s.arrived)].large; in != nil && in.done {
				n++
			}
		}
		return n
	}
	eventually(t, ctx, s, "two messages are read, and two wait", func() bool {
		if n := s.readEarly(); n > 2 {
			t.Errorf("%d messages are read", n)
			return true
		}
		return read() == 2 && s.count == 4
	})
	go call(2)
	eventually(t, ctx, s, "a short message arrives", func() bool { return s.count == 5 })
	close(release)
	for i := range 6 {
		if err := <-returned; err != nil {
			t.Error(err)
		}
		if i < 2 {
			if n := <-began; n != 2<<20 {
				t.Errorf("handler %d is of a request of %d bytes", i+1, n)
			}
		}
	}
	closeAll(t, c, s)
	<-handled
}

// TestHandleNoReplies checks that the connection ends if a peer makes calls and accepts no replies, by
// Options.IdleTimeout also earlier.
func TestHandleNoReplies(t *testing.T) {
	for _, idle := range []time.Duration{0, 20 * time.Millisecond} {
		c, h := hostilePair(t, &Options{IdleTimeout: idle}, honestHello())
		if idle == 0 {
			c.mu.Lock()
			c.calls.replyPatience = 20 * time.Millisecond
			c.unlock()
		}
		handled := handledBy(h.ctx, c, func(context.Context, *Request) ([]byte, error) { return nil, nil }, 4)
		for i := range 4 {
			h.call(i, 0)
		}
		err := <-handled
		var reason *CloseError
		switch {
		case idle > 0 && (!errors.As(err, &reason) || reason.Code != CodeIdle):
			t.Errorf("Handle returns %v", err)
		case idle == 0 && (!errors.Is(err, ErrReplyTimeout) || !errors.Is(err, ErrDisconnected) ||
			errors.Is(err, context.DeadlineExceeded)):
			t.Errorf("Handle returns %v", err)
		}
	}
}

// TestHandleSpares checks that goroutines handle further messages, that no more than maxSpares wait for them, and that
// one whose handler has ended it does not.
func TestHandleSpares(t *testing.T) {
	clients, servers, _ := honestConns(t, 1, nil, nil)
	c, ctx := clients[0], bounded(t)
	began, release := make(chan string, 32), make(chan struct{})
	handled := handledBy(ctx, servers[0], func(_ context.Context, r *Request) ([]byte, error) {
		began <- goroutine()
		<-release
		if r.Len() == 0 {
			runtime.Goexit()
		}
		return nil, nil
	}, 32)
	call := func(b []byte) error {
		m, err := c.Call(ctx, b)
		m.Release()
		return err
	}
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			if err := call(make([]byte, i%2)); (err == nil) != (i%2 == 1) {
				t.Error(err)
			}
		})
	}
	ids := map[string]bool{}
	for range 20 {
		ids[<-began] = true
	}
	if len(ids) != 20 {
		t.Errorf("20 handlers run in %d goroutines", len(ids))
	}
	close(release)
	calls.Wait()
	eventually(t, ctx, servers[0], "the others have ended", func() bool {
		all, waiting := workers()
		return all == maxSpares && waiting == maxSpares
	})
	for range 10 {
		if err := call([]byte{1}); err != nil {
			t.Error(err)
		}
		if id := <-began; !ids[id] {
			t.Error("a handler runs in a new goroutine")
		}
	}
	closeAll(t, c, servers[0])
	if err := <-handled; err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// goroutine returns a name of the goroutine that calls it.
func goroutine() string {
	name, _, _ := strings.Cut(string(stacks(false)), " [")
	return name
}

// parked matches a goroutine that waits for a message to handle.
var parked = regexp.MustCompile(`\[chan receive.*\]:\n\S+\(\*handling\)\.work\(`)

// workers returns how many goroutines handle messages or wait for them, and how many wait.
func workers() (all, waiting int) {
	b := stacks(true)
	return bytes.Count(b, []byte("(*handling).work(")), len(parked.FindAll(b, -1))
}

func stacks(all bool) []byte {
	b := make([]byte, 1<<20)
	return b[:runtime.Stack(b, all)]
}
