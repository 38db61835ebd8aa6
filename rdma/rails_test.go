package rdma_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/machine"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// A railed is a client and a server with two devices each, here and there, and a rail from each to its counterpart.
type railed struct {
	net         *verbstest.Network
	here, there [2]*verbstest.Machine
	rails       []rdma.Rail
	stop        func() // the server

	mu    sync.Mutex
	calls map[string]int // how often the server has got each request
}

const railPort = 7471

// newRailed starts the server, which replies to a request with the name of its device. serve, if not nil, serves
// connections instead.
func newRailed(t *testing.T, serve func(ctx context.Context, c *rdma.Conn) error) *railed {
	t.Helper()
	n := verbstest.NewNetwork(t)
	n.SetTimeouts(verbstest.Timeouts{Ack: 12, Reply: 20 * time.Millisecond})
	r := &railed{net: n, calls: map[string]int{}}
	r.here[0], r.there[0] = n.Machine(), n.Machine()
	r.here[1], r.there[1] = r.here[0].AddDevice(), r.there[0].AddDevice()
	for i := range r.here {
		r.rails = append(r.rails, rdma.Rail{Addr: r.there[i].AddrPort(railPort).String(), LocalAddr: r.here[i].AddrPort(0)})
	}
	if serve == nil {
		serve = r.reply
	}
	r.listen(t, serve, 0)
	return r
}

// listen starts the server, with an idle timeout or 0.
func (r *railed) listen(t *testing.T, serve func(ctx context.Context, c *rdma.Conn) error, idle time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	r.there[0].Run(func() {
		o := listening(silent)
		o.Linger, o.KeepAlive, o.IdleTimeout = -1, 20*time.Millisecond, idle
		l := must(rdma.Listen(fmt.Sprintf(":%d", railPort), o))(t)
		go func() { served <- l.Serve(ctx, serve) }()
	})
	r.stop = sync.OnceFunc(func() {
		cancel()
		check(t, within(t, served, "Serve"))
	})
	t.Cleanup(r.stop)
}

// reply counts a request, and replies with the name of the device.
func (r *railed) reply(ctx context.Context, c *rdma.Conn) error {
	name := c.CM().Verbs().Name()
	return c.ServeCalls(ctx, func(b []byte) []byte {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls[string(b)]++
		return []byte(name)
	})
}

// client returns a client over both rails, on the machine of the client.
func (r *railed) client(t *testing.T, o rdma.ClientOptions[int]) *rdma.Client[int] {
	t.Helper()
	o.LocalAddr, o.Linger, o.KeepAlive, o.Rails = r.rails[0].LocalAddr, -1, 20*time.Millisecond, r.rails[1:]
	o.MinBackoff, o.MaxBackoff = time.Millisecond, max(o.MaxBackoff, 50*time.Millisecond)
	cl := rdma.NewClient(r.rails[0].Addr, &o)
	t.Cleanup(func() { _ = cl.Close() }) // of tests that have failed
	return cl
}

// onClient runs f on the machine of the client.
func (r *railed) onClient(f func()) { r.here[0].Run(f) }

// request makes a call.
func request(text string) func(context.Context, *rdma.Conn, int) error {
	return func(ctx context.Context, c *rdma.Conn, _ int) error {
		device := c.CM().Verbs() // nil after Close; both ends of a rail have devices of the same name
		m, err := c.Call(ctx, []byte(text))
		if err == nil && string(m.Bytes()) != device.Name() {
			err = fmt.Errorf("the reply is %q", m.Bytes())
		}
		m.Release()
		return err
	}
}

// awaitUp waits until a rail is up, which calls make it, or down.
func awaitUp(t *testing.T, cl *rdma.Client[int], i int, up bool) {
	t.Helper()
	ctx := limit(t)
	until(t, fmt.Sprintf("rail %d is up: %t", i, up), func() bool {
		check(t, cl.Retry(ctx, request("await")))
		return cl.Rails()[i].Up == up
	})
}

// load makes calls by Retry in several goroutines until the result is called. All of them succeed.
func (r *railed) load(t *testing.T, cl *rdma.Client[int]) (stop func()) {
	ctx := limit(t)
	var ending atomic.Bool
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := 0; !ending.Load(); i++ {
				name := fmt.Sprint("load ", g, " ", i)
				if err := cl.Retry(ctx, request(name)); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
			}
		})
	}
	return func() {
		ending.Store(true)
		all.Wait()
	}
}

// TestRails checks that calls use both rails, and what the client says about them.
func TestRails(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{Conns: 2})
		for i, s := range cl.Rails() {
			if want := (rdma.RailStats{Addr: r.rails[i].Addr, NUMANode: -1}); s != want {
				t.Errorf("before the first call: %+v, want %+v", s, want)
			}
		}
		check(t, cl.Do(ctx, request("first")))
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		until(t, "four connections", func() bool { return cl.Stats().Conns == 4 })
		before := cl.Rails()
		for range 10 {
			check(t, cl.Do(ctx, request("again")))
		}
		for i, s := range cl.Rails() {
			if s.Calls != before[i].Calls+5 {
				t.Errorf("rail %d has got %d of 10 calls", i, s.Calls-before[i].Calls)
			}
			if n := s.SentBytes - before[i].SentBytes; n != 5*uint64(len("again")) {
				t.Errorf("rail %d has sent %d bytes", i, n)
			}
			if s.Device != r.here[i].Device() || s.Port != 1 || s.LocalAddr.Addr() != r.here[i].Addr() || s.Err != nil ||
				s.Conns != 2 || s.Connected != 2 || s.Failed != 0 || !s.Up || s.NUMANode != -1 {
				t.Errorf("rail %d: %+v", i, s)
			}
		}
		check(t, cl.Close())
		isError(t, cl.Do(ctx, request("late")), net.ErrClosed)
		for i, s := range cl.Rails() { // what was counted stays
			if s.Up || s.Conns != 0 || s.SentBytes < before[i].SentBytes+5*uint64(len("again")) {
				t.Errorf("rail %d after Close: %+v", i, s)
			}
		}
	})
}

// TestRailPortDown has a port go down under load. Further calls use the other rail at once, and both when it is up
// again.
func TestRailPortDown(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		stop := r.load(t, cl)
		r.here[1].SetPort(false)
		until(t, "rail 1 is down", func() bool { return !cl.Rails()[1].Up })
		calls := cl.Rails()
		for range 50 {
			check(t, cl.Do(ctx, request("down")))
		}
		now := cl.Rails()
		// Calls by the load that had chosen the rail before may count.
		if n := now[1].Calls - calls[1].Calls; n > 8 {
			t.Errorf("%d calls have used a rail whose port is down", n)
		}
		if n := now[0].Calls - calls[0].Calls; n < 50 {
			t.Errorf("%d calls have used the other rail", n)
		}
		r.here[1].SetPort(true)
		until(t, "rail 1 is used", func() bool { s := cl.Rails()[1]; return s.Up && s.Calls > now[1].Calls+8 })
		stop()
		check(t, cl.Close())
	})
}

// TestRailPortFlap has a port go down while no call waits, and come up before its connection ends. No call uses the
// rail in between.
func TestRailPortFlap(t *testing.T) {
	r := newRailed(t, nil)
	r.net.SetTimeouts(verbstest.Timeouts{Ack: 17}) // half a second, and four before the end
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		r.here[1].SetPort(false)
		until(t, "rail 1 is down", func() bool { return !cl.Rails()[1].Up })
		before := cl.Rails()[1].Calls
		for range 20 {
			check(t, cl.Do(ctx, request("down")))
		}
		if n := cl.Rails()[1].Calls - before; n > 0 {
			t.Errorf("%d calls have used a rail whose port is down", n)
		}
		r.here[1].SetPort(true)
		until(t, "rail 1 is used", func() bool {
			check(t, cl.Do(ctx, request("up")))
			return cl.Rails()[1].Calls > before
		})
		check(t, cl.Close())
	})
}

// TestRailDeviceRemoved has a device of the client or of the server removed under load.
func TestRailDeviceRemoved(t *testing.T) {
	for name, at := range map[string]func(r *railed) *verbstest.Machine{
		"client": func(r *railed) *verbstest.Machine { return r.here[1] },
		"server": func(r *railed) *verbstest.Machine { return r.there[1] },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRailed(t, nil)
			r.onClient(func() {
				cl := r.client(t, rdma.ClientOptions[int]{})
				awaitUp(t, cl, 0, true)
				awaitUp(t, cl, 1, true)
				stop := r.load(t, cl)
				at(r).RemoveDevice()
				awaitUp(t, cl, 1, false)
				failed := cl.Rails()[1].Failed
				until(t, "another attempt", func() bool { return cl.Rails()[1].Failed > failed+1 })
				stop()
				s := cl.Rails()
				if !s[0].Up || s[0].Err != nil || s[1].Err == nil {
					t.Errorf("%+v", s)
				}
				if name == "client" {
					isError(t, s[1].Err, uverbs.ErrNoDevice)
				}
				check(t, cl.Close())
			})
		})
	}
}

// TestRailCallsOnce has a device removed under load, and checks that the server gets a call by Do once at most, and a
// call that succeeds once.
func TestRailCallsOnce(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	var results sync.Map
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		var all sync.WaitGroup
		var made atomic.Int64
		for g := range 8 {
			all.Go(func() {
				for i := range 100 {
					name := fmt.Sprint("once ", g, " ", i)
					results.Store(name, cl.Do(ctx, request(name)))
					if made.Add(1) == 200 {
						r.here[1].RemoveDevice()
					}
				}
			})
		}
		all.Wait()
		check(t, cl.Close())
	})
	r.stop()
	failed := 0
	for k, v := range results.Range {
		got := r.calls[k.(string)]
		switch err, _ := v.(error); {
		case err == nil && got != 1, err != nil && got > 1:
			t.Errorf("%s: %v, and the server has got it %d times", k, err, got)
		case err != nil:
			isError(t, err, rdma.ErrDisconnected)
			failed++
		}
	}
	if failed > 8 {
		t.Errorf("%d calls have failed, with 8 at a time", failed)
	}
}

// TestRailUnreachable has a rail that never connects. Calls do not wait for it, nor does Close.
func TestRailUnreachable(t *testing.T) {
	r := newRailed(t, nil)
	r.net.SetTimeouts(verbstest.Timeouts{Reply: time.Minute})
	defer r.net.Partition(r.here[1], r.there[1])()
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		for range 20 {
			check(t, cl.Do(ctx, request("x")))
		}
		if s := cl.Rails(); s[0].Calls != 20 || s[1].Calls != 0 || s[1].Up || s[1].Connected != 0 {
			t.Errorf("%+v", s)
		}
		check(t, within(t, background(cl.Close), "Close"))
	})
}

// TestRailSetup has a server that does not send on one rail what Setup waits for. Calls use the other rail, attempts
// end with Options.Timeout, and Close ends the last one.
func TestRailSetup(t *testing.T) {
	var r *railed
	r = newRailed(t, func(ctx context.Context, c *rdma.Conn) error {
		if c.LocalAddr() == r.there[1].AddrPort(railPort) {
			return c.ServeCalls(ctx, nil)
		}
		if err := c.Send(ctx, []byte("welcome")); err != nil {
			return err
		}
		return r.reply(ctx, c)
	})
	ctx := limit(t)
	r.onClient(func() {
		o := rdma.ClientOptions[int]{Setup: func(ctx context.Context, c *rdma.Conn) (int, error) {
			m, err := c.Recv(ctx)
			m.Release()
			return 0, err
		}}
		o.Timeout = 50 * time.Millisecond
		cl := r.client(t, o)
		until(t, "three connections of rail 1", func() bool {
			check(t, cl.Do(ctx, request("x")))
			return cl.Rails()[1].Connected >= 3
		})
		if s := cl.Rails()[1]; s.Up || s.Calls != 0 {
			t.Errorf("%+v", s)
		}
		isError(t, cl.Rails()[1].Err, context.DeadlineExceeded)
		check(t, within(t, background(cl.Close), "Close"))
	})
}

// TestRailDoubted has the server of a rail not reached any more. A call on it waits until its deadline, or that of its
// function, and further ones use the other rail, long before the device gives up.
func TestRailDoubted(t *testing.T) {
	t.Parallel()
	r := newRailed(t, nil)
	r.net.SetTimeouts(verbstest.Timeouts{Ack: 25}) // minutes
	ctx := limit(t)
	do := func(cl *rdma.Client[int], inner bool) error {
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if !inner {
			return cl.Do(short, request("short"))
		}
		return cl.Do(ctx, func(_ context.Context, c *rdma.Conn, s int) error { return request("short")(short, c, s) })
	}
	r.onClient(func() {
		for _, inner := range []bool{false, true} {
			cl := r.client(t, rdma.ClientOptions[int]{MaxBackoff: time.Hour})
			awaitUp(t, cl, 0, true)
			awaitUp(t, cl, 1, true)
			heal := r.net.Partition(r.here[1], r.there[1])
			failed := 0
			for range 20 {
				if err := do(cl, inner); err != nil {
					isError(t, err, context.DeadlineExceeded)
					failed++
				}
			}
			if failed != 1 {
				t.Errorf("%d calls have failed, want 1", failed)
			}
			heal()
			check(t, cl.Close())
		}
	})
}

// TestRailSlow has a rail whose packets are slow. It gets fewer calls.
func TestRailSlow(t *testing.T) {
	r := newRailed(t, nil)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		before := cl.Rails()
		defer r.net.AddFault(verbstest.PacketFault{Action: verbstest.Delay, From: r.here[1], Delay: 2 * time.Millisecond})()
		stop := r.load(t, cl)
		until(t, "1000 calls", func() bool { return cl.Rails()[0].Calls > before[0].Calls+1000 })
		stop()
		after := cl.Rails()
		fast, slow := after[0].Calls-before[0].Calls, after[1].Calls-before[1].Calls
		if slow == 0 || slow >= fast {
			t.Errorf("%d calls on the fast rail, %d on the slow one", fast, slow)
		}
		stop = r.load(t, cl)
		r.here[0].RemoveDevice()
		until(t, "100 calls", func() bool { return cl.Rails()[1].Calls > after[1].Calls+100 })
		stop()
		check(t, cl.Close())
	})
}

// TestRailsBothDown has both ports go down under load, and come up again. Calls end with their deadlines or succeed.
func TestRailsBothDown(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		stop := r.load(t, cl)
		for _, m := range r.here {
			m.SetPort(false)
		}
		until(t, "both rails are down", func() bool { s := cl.Rails(); return !s[0].Up && !s[1].Up })
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		isError(t, cl.Retry(short, request("down")), context.DeadlineExceeded)
		cancel()
		for _, m := range r.here {
			m.SetPort(true)
		}
		check(t, cl.Retry(ctx, request("up")))
		until(t, "both rails are up", func() bool { s := cl.Rails(); return s[0].Up && s[1].Up })
		stop()
		check(t, cl.Close())
	})
}

// TestRailsServerKilled has the server lose power under load. Calls end with their deadlines, and Close does not wait.
func TestRailsServerKilled(t *testing.T) {
	r := newRailed(t, nil)
	r.net.Allow(verbstest.Destination)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var all sync.WaitGroup
		used := make(chan struct{}, 8)
		for range 8 {
			all.Go(func() {
				for once := false; ; once = true {
					if err := cl.Retry(short, request("x")); err != nil {
						isError(t, err, context.DeadlineExceeded)
						return
					}
					if !once {
						used <- struct{}{}
					}
				}
			})
		}
		for range 8 {
			<-used
		}
		r.there[0].Kill()
		all.Wait()
		for i, s := range cl.Rails() {
			if s.Up || s.Err == nil {
				t.Errorf("rail %d: %+v", i, s)
			}
		}
		check(t, within(t, background(cl.Close), "Close"))
	})
}

// TestRailsAllFail checks that calls wait while no rail works, that their errors say why, and that they go on.
func TestRailsAllFail(t *testing.T) {
	r := newRailed(t, nil)
	r.stop()
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		until(t, "an error of both rails", func() bool {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			err := cl.Do(short, request("x"))
			isError(t, err, context.DeadlineExceeded)
			text := err.Error()
			return errors.Is(err, cm.ErrRejected) && bytes.Contains([]byte(text), []byte(r.rails[0].Addr+": ")) &&
				bytes.Contains([]byte(text), []byte(r.rails[1].Addr+": "))
		})
		waiting := background(func() error { return cl.Do(ctx, request("x")) })
		r.listen(t, r.reply, 0)
		check(t, within(t, waiting, "Do"))
		check(t, cl.Close())
	})
}

// TestRailsRefused checks that calls return an error that another attempt would return, too, and that the next call
// tries again.
func TestRailsRefused(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	own := errors.New("own error")
	r.onClient(func() {
		var bad atomic.Int32 // rails that fail
		cl := r.client(t, rdma.ClientOptions[int]{Setup: func(_ context.Context, c *rdma.Conn) (int, error) {
			if c.RemoteAddr() == r.there[0].AddrPort(railPort) && bad.Load() > 0 || bad.Load() > 1 {
				return 0, own
			}
			return 0, nil
		}})
		bad.Store(2)
		for range 2 {
			isError(t, cl.Do(ctx, request("x")), own)
		}
		bad.Store(1)
		check(t, cl.Do(ctx, request("x")))
		isError(t, cl.Rails()[0].Err, own)
		bad.Store(0)
		awaitUp(t, cl, 0, true)
		check(t, cl.Close())
	})
}

// TestRailsCloseRace closes a client while rails fail, connect and are used.
func TestRailsCloseRace(t *testing.T) {
	for range 5 {
		r := newRailed(t, nil)
		r.onClient(func() {
			cl := r.client(t, rdma.ClientOptions[int]{})
			used := make(chan struct{}, 100)
			var all sync.WaitGroup
			for g := range 8 {
				all.Go(func() {
					for {
						err := cl.Retry(t.Context(), request(fmt.Sprint(g)))
						if err != nil {
							isError(t, err, net.ErrClosed)
							return
						}
						select {
						case used <- struct{}{}:
						default:
						}
					}
				})
			}
			for range 20 {
				<-used
			}
			r.here[1].RemoveDevice()
			check(t, cl.Close())
			all.Wait()
			check(t, cl.Close())
		})
	}
}

// TestRailNUMA checks that calls use the rail near the caller's CPU, and the other one if it fails.
func TestRailNUMA(t *testing.T) {
	t.Parallel()
	r := newRailed(t, nil)
	ctx := limit(t)
	done := make(chan struct{})
	go func() { // on a thread of its own, which stays on its CPU and ends with it
		defer close(done)
		runtime.LockOSThread()
		var cpus unix.CPUSet
		check(t, unix.SchedGetaffinity(0, &cpus))
		for i := range 1024 {
			if cpus.IsSet(i) {
				cpus.Zero()
				cpus.Set(i)
			}
		}
		check(t, unix.SchedSetaffinity(0, &cpus))
		node := machine.CPUNode()
		r.onClient(func() {
			for near := range r.here {
				r.here[near].SetNUMANode(node)
				r.here[1-near].SetNUMANode(node + 1)
				cl := r.client(t, rdma.ClientOptions[int]{})
				awaitUp(t, cl, 0, true)
				awaitUp(t, cl, 1, true)
				before := cl.Rails()
				for range 100 { // more than the node of a P is known for
					check(t, cl.Do(ctx, request("near")))
				}
				after := cl.Rails()
				if n := after[near].Calls - before[near].Calls; n != 100 || after[near].NUMANode != node {
					t.Errorf("%d of 100 calls on the rail of node %d, whose node is %d", n, node, after[near].NUMANode)
				}
				r.here[near].SetPort(false)
				awaitUp(t, cl, near, false)
				if n := cl.Rails()[1-near].Calls - after[1-near].Calls; n == 0 {
					t.Error("no call on the other rail")
				}
				r.here[near].SetPort(true)
				awaitUp(t, cl, near, true)
				check(t, cl.Close())
			}
		})
	}()
	<-done
}

// spreadLen is not a multiple of the length of parts.
const spreadLen = 8<<20 + 123

// TestSpread transfers memory over both rails, also while one is removed.
func TestSpread(t *testing.T) {
	for _, removed := range []bool{false, true} {
		t.Run(fmt.Sprint("removed=", removed), func(t *testing.T) { testSpread(t, removed) })
	}
}

func testSpread(t *testing.T, removed bool) {
	region := rdma.NewRegion(spreadLen)
	r := newRailed(t, func(ctx context.Context, c *rdma.Conn) error {
		if _, err := c.SendToken(ctx, region, rdma.CanRead|rdma.CanWrite); err != nil {
			return err
		}
		return c.ServeCalls(ctx, func([]byte) []byte { return nil })
	})
	ctx := limit(t)
	r.onClient(func() {
		cl := rdma.NewClient(r.rails[0].Addr, &rdma.ClientOptions[rdma.Token]{Setup: rdma.RecvToken, Rails: r.rails[1:],
			Options: rdma.Options{LocalAddr: r.rails[0].LocalAddr, Linger: -1}})
		until(t, "two rails", func() bool {
			check(t, cl.Do(ctx, func(context.Context, *rdma.Conn, rdma.Token) error { return nil }))
			return cl.Stats().Conns == 2
		})
		data := pattern(spreadLen, 1)
		var calls atomic.Int64
		check(t, cl.Spread(ctx, len(data), func(ctx context.Context, c *rdma.Conn, to rdma.Token, off, n int) error {
			if calls.Add(1) == 4 && removed {
				r.here[1].RemoveDevice()
			}
			return c.Write(ctx, data[off:off+n], to, off)
		}))
		if !bytes.Equal(region.Bytes(), data) {
			t.Error("other data was written")
		}
		got := rdma.NewRegion(spreadLen)
		check(t, cl.Spread(ctx, spreadLen, func(ctx context.Context, c *rdma.Conn, from rdma.Token, off, n int) error {
			b, err := c.BufferOf(got, off, n)
			if err != nil {
				return err
			}
			defer b.Release()
			return c.ReadBuffer(ctx, b, from, off)
		}))
		if !bytes.Equal(got.Bytes(), data) {
			t.Error("other data was read")
		}
		s := cl.Rails()
		if n := s[0].SpreadBytes + s[1].SpreadBytes; n != 2*spreadLen || s[0].SpreadBytes == 0 ||
			s[1].SpreadBytes == 0 && !removed {
			t.Errorf("%d and %d bytes", s[0].SpreadBytes, s[1].SpreadBytes)
		}
		check(t, cl.Close())
		check(t, got.Close())
	})
	r.stop()
	check(t, region.Close())
}

// TestSpreadExits has the function of a part end its goroutine.
func TestSpreadExits(t *testing.T) {
	r := newRailed(t, nil)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		err := cl.Spread(limit(t), 4*(1<<20), func(_ context.Context, _ *rdma.Conn, _, off, _ int) error {
			if off == 0 {
				runtime.Goexit()
			}
			return nil
		})
		if err == nil {
			t.Error("Spread returns nil without a part")
		}
		check(t, cl.Close())
	})
}

// TestSpreadOneAddress checks what a client with one address says about its rail.
func TestSpreadOneAddress(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		o := rdma.ClientOptions[int]{Options: rdma.Options{LocalAddr: r.rails[0].LocalAddr, Linger: -1}}
		cl := rdma.NewClient(r.rails[0].Addr, &o)
		check(t, cl.Spread(ctx, 3<<20, func(context.Context, *rdma.Conn, int, int, int) error { return nil }))
		check(t, cl.Close())
		isError(t, cl.Do(ctx, request("late")), net.ErrClosed)
		if s := cl.Rails()[0]; s.SpreadBytes != 3<<20 || s.Calls != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// TestSpreadErrors checks that the first error ends the other parts, and the limits of the length.
func TestSpreadErrors(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	own := errors.New("own error")
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{})
		var calls atomic.Int32
		err := cl.Spread(ctx, 64<<20, func(ctx context.Context, _ *rdma.Conn, _, off, n int) error {
			if calls.Add(1) == 3 {
				return own
			}
			<-ctx.Done()
			return ctx.Err()
		})
		isError(t, err, own)
		if n := calls.Load(); n > 4 {
			t.Errorf("%d parts, with 4 at a time", n)
		}
		check(t, cl.Spread(ctx, 0, nil))
		isError(t, cl.Spread(ctx, -1, nil), rdma.ErrBounds)
		isError(t, cl.Spread(ctx, math.MaxInt, func(context.Context, *rdma.Conn, int, int, int) error { return own }), own)
		short, cancel := context.WithCancelCause(ctx)
		cancel(own)
		isError(t, cl.Spread(short, 1, func(ctx context.Context, _ *rdma.Conn, _, _, _ int) error {
			return context.Cause(ctx)
		}), own)
		check(t, cl.Close())
	})
}
