package cm

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// chaosTime is how long TestChaos runs, unless GOVERBS_CHAOS has another duration, such
// as "15m".
const chaosTime = time.Second

// TestChaos dials, cancels, rejects, migrates, disconnects and closes at random, while
// listeners are opened and closed and a device is removed, each with contexts that end
// at any time. Each call must return, no objects may remain, and all errors must be
// among those that a program expects. To run it for longer:
//
//	GOVERBS_CHAOS=15m CGO_ENABLED=1 go test -race -timeout 20m -run TestChaos -v ./cm
func TestChaos(t *testing.T) {
	duration := chaosTime
	if s := os.Getenv("GOVERBS_CHAOS"); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
	}
	var all chaosCounts
	end := time.Now().Add(duration)
	for n := 0; time.Now().Before(end) && !t.Failed(); n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) { chaosEpoch(t, &all) })
	}
	t.Logf("%d dials, %d connections, %d accepted, %d messages, %d removals",
		all.dials.Load(), all.conns.Load(), all.accepted.Load(), all.messages.Load(), all.removals.Load())
}

type chaosCounts struct{ dials, conns, accepted, messages, removals atomic.Int64 }

// chaos is a machine until its device is removed.
type chaos struct {
	*chaosCounts
	t    testing.TB
	rig  *rig
	gone atomic.Bool // whether the device was removed
}

// chaosEpoch runs several listeners on one machine.
func chaosEpoch(t *testing.T, all *chaosCounts) {
	c := &chaos{chaosCounts: all, t: t, rig: newRig(t)}
	anchor := newSyncID(t, PSTCP) // keeps the pump running
	remove := rand.IntN(2) == 0
	for round := range 4 {
		o := &ListenOptions{Options: Options{QP: small, Setup: c.setUp},
			Backlog: 1 + rand.IntN(8), MaxHandshakes: 1 + rand.IntN(4),
			HandshakeTimeout: time.Duration(1+rand.IntN(20)) * time.Millisecond,
			MaxConns:         4 + rand.IntN(20), ManualAccept: rand.IntN(3) == 0}
		l, err := Listen("192.0.2.1:0", o)
		check(t, err)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() { c.dialer(l) })
			if o.ManualAccept {
				wg.Go(func() { c.requester(l) })
			} else {
				wg.Go(func() { c.acceptor(l) })
			}
		}
		switch {
		case remove && round == 3:
			wg.Go(func() { c.removal() })
		case rand.IntN(2) == 0:
			wg.Go(func() {
				c.pause()
				c.ok("Listener.Close", l.Close())
			})
		}
		wg.Wait()
		c.ok("Listener.Close", l.Close())
	}
	check(t, anchor.Close())
	until(t, "all requests are refused", func() bool { return len(c.rig.IDs()) == 0 })
}

func (c *chaos) removal() {
	c.pause()
	c.gone.Store(true)
	c.removals.Add(1)
	c.rig.RemoveDevice()
}

// pause yields to other goroutines a random number of times.
func (c *chaos) pause() {
	ctx, cancel := c.short()
	defer cancel()
	<-ctx.Done()
}

// short returns a context that ends soon.
func (c *chaos) short() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), time.Duration(rand.IntN(5000))*time.Microsecond)
}

var errChaos = errors.New("not today")

// setUp posts a receive, or fails.
func (c *chaos) setUp(conn *Conn) error {
	if rand.IntN(10) == 0 {
		return errChaos
	}
	return conn.PostRecv(1, uverbs.SGE{})
}

// ok reports err as a failure of the test unless programs have to expect it.
func (c *chaos) ok(what string, err error) {
	c.t.Helper()
	if err != nil && !c.expected(err) {
		c.t.Errorf("%s: %v", what, err)
	}
}

func (c *chaos) expected(err error) bool {
	if c.gone.Load() { // commands of a removed device fail in many ways
		return true
	}
	for _, e := range []error{errChaos, context.DeadlineExceeded, context.Canceled, ErrRejected, ErrDisconnected,
		ErrListenerClosed, uverbs.ErrClosed, ErrTimeout} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// dialer runs several clients, some of which cancel.
func (c *chaos) dialer(l *Listener) {
	for range 6 {
		ctx, cancel := c.short()
		c.dials.Add(1)
		conn, err := Dial(ctx, l.Addr().String(), &Options{QP: small, PrivateData: make([]byte, rand.IntN(57))})
		if err != nil {
			c.ok("Dial", err)
		} else {
			c.conns.Add(1)
			c.use(ctx, conn)
		}
		cancel()
	}
}

// acceptor accepts connections with short deadlines.
func (c *chaos) acceptor(l *Listener) {
	for range 10 {
		ctx, cancel := c.short()
		conn, err := l.Accept(ctx)
		if err == nil {
			c.accepted.Add(1)
			c.use(ctx, conn)
		} else {
			c.ok("Accept", err)
		}
		cancel()
		if errors.Is(err, ErrListenerClosed) {
			is(c.t, "Accept after the end", second(l.Accept(context.Background())), ErrListenerClosed)
			return
		}
	}
}

// requester inspects requests before it accepts them.
func (c *chaos) requester(l *Listener) {
	for range 6 {
		ctx, cancel := c.short()
		q, err := l.Request(ctx)
		switch {
		case err != nil:
			c.ok("Request", err)
		case rand.IntN(3) == 0:
			// If the client has disconnected, no request is left to reject.
			if err := q.Reject(make([]byte, rand.IntN(149))); err != nil && !errors.Is(err, uverbs.ErrInvalid) {
				c.ok("Reject", err)
			}
		case rand.IntN(2) == 0:
			c.ok("Request.Close", q.Close())
		default:
			conn, err := q.Accept(ctx, nil)
			if err == nil {
				c.accepted.Add(1)
				c.use(ctx, conn)
			} else {
				c.ok("Request.Accept", err)
			}
		}
		cancel()
	}
}

// use sends, receives and ends a connection in one of many ways, concurrently with
// others.
func (c *chaos) use(ctx context.Context, conn *Conn) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			wc, err := conn.RecvComp(ctx)
			if err != nil {
				c.ok("RecvComp", err)
				return
			}
			c.messages.Add(1)
			_ = conn.PostRecv(wc.WRID, uverbs.SGE{})
		}
	})
	wg.Go(func() {
		for range rand.IntN(4) {
			if err := conn.PostSend(1, uverbs.Signaled, uverbs.SGE{}); err != nil {
				c.ok("PostSend", err)
				return
			}
			_, err := conn.SendComp(ctx)
			c.ok("SendComp", err)
		}
	})
	wg.Go(func() {
		b := conn.QP()
		if b == nil {
			return
		}
		batch := b.StartSend()
		conn.RemoteAddr()
		conn.Verbs()
		_ = conn.Err()
		batch.Abort()
	})
	c.end(ctx, conn)
	wg.Wait()
	c.ok("Close", conn.Close())
	if conn.Err() == nil {
		c.t.Error("a closed connection has no error")
	}
}

// end ends a connection, moves it, or lets the peer end it.
func (c *chaos) end(ctx context.Context, conn *Conn) {
	switch rand.IntN(5) {
	case 0:
		if err := conn.Shutdown(ctx); err != nil {
			c.ok("Shutdown", err)
		}
	case 1:
		c.ok("Close", conn.Close())
	case 2:
		ch, err := NewEventChannel()
		if err != nil {
			c.t.Error(err)
			return
		}
		c.ok("Migrate", conn.id.Migrate(ch))
		_, err = ch.Next(ctx)
		c.ok("Next", err)
		if s, err := conn.id.Sync(); err == nil {
			c.pause()
			c.ok("Close, moved", s.Close())
		} else {
			c.ok("Sync", err)
			c.ok("Close, moved", conn.Close())
		}
		c.ok("EventChannel.Close", ch.Close())
	case 3:
		c.ok("Disconnect", conn.id.ID.Disconnect())
	default:
		<-ctx.Done()
	}
}
