package devicetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// A countdown is a context that ends when it is checked for the n-th time.
type countdown struct {
	context.Context
	cancel context.CancelCauseFunc
	left   atomic.Int64
}

func newCountdown(t testing.TB, n int) *countdown {
	c := &countdown{}
	c.Context, c.cancel = context.WithCancelCause(limit(t))
	t.Cleanup(func() { c.cancel(nil) })
	c.left.Store(int64(n))
	return c
}

func (c *countdown) look() {
	if c.left.Add(-1) == 0 {
		c.cancel(errCut)
	}
}

func (c *countdown) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

func (c *countdown) Err() error {
	c.look()
	return c.Context.Err()
}

// openPoller makes the runtime open the descriptors of its poller, which it keeps.
func openPoller(t testing.TB) {
	t.Helper()
	r, w, err := os.Pipe()
	check(t, err)
	check(t, errors.Join(r.Close(), w.Close()))
}

// leavesNothing counts objects, and checks at the end of the test, or when the function
// is called, that the counts are the same.
func leavesNothing(t *testing.T) (now func()) {
	t.Helper()
	openPoller(t)
	objects, fds, goroutines := kernelObjects(t), count(t, "fd"), runtime.NumGoroutine()
	return func() {
		t.Helper()
		sameObjects(t, objects)
		eventually(t, "the end of goroutines", func() bool { return runtime.NumGoroutine() <= goroutines })
		if n := count(t, "fd"); n > fds {
			t.Errorf("%d descriptors are open, %d before", n, fds)
		}
	}
}

// service accepts connections and closes them, until it is stopped.
func service(t *testing.T) (l *cm.Listener, stop func()) {
	t.Helper()
	ctx := limit(t)
	l = must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()}}))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept(ctx)
			if errors.Is(err, cm.ErrListenerClosed) || ctx.Err() != nil {
				return
			}
			if err == nil {
				err = c.Close()
			}
			if err != nil && !withdrawn(err) {
				t.Errorf("Accept when the peer goes away: %v", err)
			}
		}
	}()
	return l, func() {
		t.Helper()
		check(t, l.Close())
		<-ended
	}
}

// withdrawn reports whether an error of Accept means that the peer has disconnected.
func withdrawn(err error) bool {
	return errors.Is(err, cm.ErrRejected) || errors.Is(err, cm.ErrDisconnected)
}

// gone checks the error of a side whose peer was killed.
func gone(t testing.TB, err error) {
	t.Helper()
	if rnic() && errors.Is(err, unix.EINVAL) {
		return // the server that was killed had sent first, which iWARP does not permit
	}
	if errors.Is(err, context.DeadlineExceeded) || !withdrawn(err) && !errors.Is(err, uverbs.WCWRFlushErr) &&
		!errors.Is(err, uverbs.WCRetryExcErr) {
		t.Errorf("the peer was killed: %v", err)
	}
}

func isDone(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestDeviceDialCut ends the context of Dial at each of its checks, and checks that no object of the connection
// remains.
func TestDeviceDialCut(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	l, stop := service(t)
	const most = 40
	for n := 1; ; n++ {
		c, err := cm.Dial(newCountdown(t, n), l.Addr().String(), nil)
		if err == nil {
			check(t, c.Close())
			t.Logf("Dial looks at its context %d times at most", n)
			break
		}
		isError(t, err, []error{errCut})
		if n == most {
			t.Fatalf("after %d looks there is no connection: %v", n, err)
		}
	}
	stop()
	now()
}

// TestDeviceDialEnded checks that Dial with a context that has ended creates no connection.
func TestDeviceDialEnded(t *testing.T) {
	begin(t)
	l, stop := service(t)
	defer stop()
	ctx, cancel := context.WithCancelCause(limit(t))
	cancel(errCut)
	for range 20 {
		c, err := cm.Dial(ctx, l.Addr().String(), nil)
		isError(t, err, []error{errCut})
		if err == nil {
			check(t, c.Close())
		}
	}
}

// TestDeviceDialCutAnywhere ends the context of Dial at a random time.
func TestDeviceDialCutAnywhere(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	l, stop := service(t)
	start := time.Now()
	c := must(cm.Dial(limit(t), l.Addr().String(), nil))(t)
	check(t, c.Close())
	whole := time.Since(start)
	cut := 0
	for range 40 {
		ctx, cancel := withTimeout(limit(t), rand.N(whole))
		c, err := cm.Dial(ctx, l.Addr().String(), nil)
		if err == nil {
			check(t, c.Close())
		} else {
			cut++
			isError(t, err, []error{errCut})
		}
		cancel()
	}
	t.Logf("%d of 40 were cut short", cut)
	stop()
	now()
}

// TestDeviceAcceptCut ends the context of Accept at each of its checks, while a client
// dials.
func TestDeviceAcceptCut(t *testing.T) {
	begin(t)
	ctx := limit(t)
	now := leavesNothing(t)
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()}}))(t)
	const most = 20
	for n := 1; ; n++ {
		dialed := make(chan error)
		clientCtx, cancel := context.WithCancel(ctx)
		go func() {
			c, err := cm.Dial(clientCtx, l.Addr().String(), nil)
			if err == nil {
				err = c.Close()
			}
			dialed <- err
		}()
		c, err := l.Accept(newCountdown(t, n))
		if err == nil {
			check(t, c.Close())
			check(t, acceptUntil(ctx, l, dialed))
			cancel()
			t.Logf("Accept looks at its context %d times at most", n)
			break
		}
		isError(t, err, []error{errCut})
		cancel()
		if err := <-dialed; err != nil && !errors.Is(err, context.Canceled) && !withdrawn(err) {
			t.Errorf("the other side: %v", err)
		}
		drain(t, l)
		if n == most {
			t.Fatalf("after %d looks there is no connection: %v", n, err)
		}
	}
	check(t, l.Close())
	now()
}

// acceptUntil accepts and closes connections until the client has dialed, and returns the client's
// error. An earlier client may have been connected by the time it was canceled, and then its
// connection is accepted first.
func acceptUntil(ctx context.Context, l *cm.Listener, dialed <-chan error) error {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		var errs []error
		for {
			c, err := l.Accept(ctx)
			if err == nil {
				errs = append(errs, c.Close())
			}
			if ctx.Err() != nil {
				ended <- errors.Join(errs...)
				return
			}
		}
	}()
	err := <-dialed
	cancel()
	return errors.Join(err, <-ended)
}

// drain accepts the waiting connections and closes them.
func drain(t *testing.T, l *cm.Listener) {
	t.Helper()
	for {
		ctx, cancel := withTimeout(limit(t), 50*time.Millisecond)
		c, err := l.Accept(ctx)
		cancel()
		if err != nil {
			isError(t, err, []error{errCut})
			return
		}
		check(t, c.Close())
	}
}

// TestDeviceCallsCut ends the contexts of the other waits, and checks that the id can be closed and that no objects
// remain.
func TestDeviceCallsCut(t *testing.T) {
	begin(t)
	ctx := limit(t)
	ended, cancel := context.WithCancelCause(ctx)
	cancel(errCut)
	now := leavesNothing(t)
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()}}))(t)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	c := must(cm.Dial(ctx, l.Addr().String(), nil))(t)
	s := accepted(t)
	m := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{ManualAccept: true}))(t)
	k := must(cm.NewEventChannel())(t)
	for _, err := range []error{second(c.RecvComp(ended)), second(c.SendComp(ended)), second(l.Accept(ended)),
		second(m.Request(ended)), second(k.Next(ended))} {
		isError(t, err, []error{errCut})
	}
	if err := c.Shutdown(ended); err != nil {
		isError(t, err, []error{errCut})
	}
	<-s.Disconnected()
	for _, e := range []interface{ Close() error }{c, s, l, m, k} {
		check(t, e.Close())
	}
	now()
}

// TestDeviceCloseListenerWithRequests checks that waiting requests are rejected when their listener is closed.
func TestDeviceCloseListenerWithRequests(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	const clients = 8
	for range 4 {
		ctx := limit(t)
		l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{ManualAccept: true}))(t)
		results := make(chan error, clients)
		for range clients {
			go func() {
				c, err := cm.Dial(ctx, l.Addr().String(), nil)
				if err == nil {
					err = errors.Join(errors.New("it connected"), c.Close())
				}
				results <- err
			}()
		}
		r := must(l.Request(ctx))(t) // at least one has arrived
		check(t, l.Close())
		check(t, r.Close())
		for range clients {
			err := <-results
			if rnic() && errors.Is(err, cm.ErrTimeout) {
				continue // siw does not always reply to a request that arrives while its listener is closed
			}
			isError(t, err, []error{cm.ErrRejected})
		}
		isError(t, second(l.Accept(ctx)), []error{uverbs.ErrClosed})
	}
	now()
}

// TestDeviceAcceptWithdrawn disconnects the client before its request is accepted.
func TestDeviceAcceptWithdrawn(t *testing.T) {
	begin(t)
	k, server := newTalk(t), newTalk(t)
	_, to := server.listen(t, cm.PSTCP, at(deviceIP, 0))
	request := func() *cm.ID {
		client := k.id(t, cm.PSTCP)
		k.resolve(t, client, to)
		check(t, client.CreateQP(nil, small()))
		before := messages(t, "rej")
		check(t, client.Connect(nil))
		child := server.good(t, cm.EventConnectRequest, nil).ID
		closing(t, child)
		check(t, child.CreateQP(nil, small()))
		check(t, client.Close())
		eventually(t, "the withdrawal", func() bool { return messages(t, "rej") > before })
		return child
	}
	child := request()
	err := child.Accept(nil)
	if err == nil { // Accept was earlier than the disconnect: an event reports it
		err = server.next(t, cm.EventRejected, child).Err()
	}
	if !withdrawn(err) {
		t.Errorf("the error does not say that the peer has gone: %v", err)
	}
	if err := request().Reject(nil); err != nil {
		isError(t, err, []error{unix.EINVAL}, "withdrawn")
	}
}
