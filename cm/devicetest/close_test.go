package devicetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// TestDeviceCloseTwice checks that every Close is idempotent, and that a channel with ids stays open.
func TestDeviceCloseTwice(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	k := must(cm.NewEventChannel())(t)
	i := must(k.CreateID(cm.PSTCP))(t)
	isError(t, k.Close(), []error{uverbs.ErrBusy, unix.EBUSY}, "close or migrate them first")
	l := must(cm.Listen(deviceIP+":0", nil))(t)
	ctx := limit(t)
	accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
	c := must(cm.Dial(ctx, l.Addr().String(), nil))(t)
	s := accepted(t)
	all := []interface{ Close() error }{i, k, c, s, l, must(cm.Devices())(t)}
	if !rnic() {
		all = append(all, must(cm.JoinMulticast(ctx, "239.1.2.30", &cm.Options{LocalAddr: at(deviceIP, 0)}))(t))
	}
	for _, o := range all {
		for range 2 {
			check(t, o.Close())
		}
	}
	if err := c.Shutdown(ctx); err != nil {
		isError(t, err, []error{uverbs.ErrClosed})
	}
	now()
}

// TestDeviceUseAfterClose checks that every call on a closed object returns ErrClosed.
func TestDeviceUseAfterClose(t *testing.T) {
	begin(t)
	ctx := limit(t)
	k := must(cm.NewEventChannel())(t)
	i := must(k.CreateID(cm.PSTCP))(t)
	check(t, i.Bind(at(deviceIP, 0)))
	s := must(cm.NewID(cm.PSTCP))(t)
	check(t, s.Bind(at(deviceIP, 0)))
	check(t, s.Listen(0))
	check(t, i.Close())
	check(t, k.Close())
	check(t, s.Close())
	group := netip.MustParseAddr("239.1.2.31")
	for name, err := range map[string]error{
		"CreateID":      second(k.CreateID(cm.PSTCP)),
		"Next":          second(k.Next(ctx)),
		"Bind":          i.Bind(at(deviceIP, 0)),
		"ResolveAddr":   i.ResolveAddr(netip.AddrPort{}, at(deviceIP, 1), 0),
		"ResolveRoute":  i.ResolveRoute(0),
		"ResolveIB":     i.ResolveIB(nil, cm.IBAddr{}, 0),
		"BindIB":        i.BindIB(cm.IBAddr{}),
		"Listen":        i.Listen(0),
		"Connect":       i.Connect(nil),
		"Accept":        i.Accept(nil),
		"Reject":        i.Reject(nil),
		"RejectECE":     i.RejectECE(nil),
		"Disconnect":    i.Disconnect(),
		"Establish":     i.Establish(),
		"Notify":        i.Notify(uverbs.EventCommEst),
		"Migrate":       i.Migrate(k),
		"Sync":          second(i.Sync()),
		"CreateQP":      i.CreateQP(nil, small()),
		"CreateSRQ":     i.CreateSRQ(nil, uverbs.SRQConfig{MaxWR: 1}),
		"InitQPAttr":    third(i.InitQPAttr(uverbs.StateInit)),
		"SetLocalECE":   i.SetLocalECE(cm.ECE{VendorID: 1}),
		"Paths":         second(i.Paths()),
		"JoinMulticast": second(i.JoinMulticast(group, cm.JoinFull)),
		"WriteEvent":    i.WriteEvent(0, 0),
		"PostRecv":      i.PostRecv(1, uverbs.SGE{}),
		"RecvComp":      second(i.RecvComp(ctx)),
		"sync Resolve":  s.ResolveAddr(ctx, netip.AddrPort{}, at(deviceIP, 1), 0),
		"sync Connect":  s.Connect(ctx, nil),
		"GetRequest":    second(s.GetRequest(ctx)),
		"sync Accept":   s.Accept(ctx, nil),
		"sync Join":     second(s.JoinMulticast(ctx, group, cm.JoinFull)),
	} {
		if !errors.Is(err, uverbs.ErrClosed) || !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	if err := s.Disconnect(ctx); err != nil {
		isError(t, err, []error{uverbs.ErrClosed})
	}
	if !isDone(s.Disconnected()) {
		t.Error("the closed id is not disconnected")
	}
	if i.Verbs() != nil || i.PD() != nil || i.QP() != nil {
		t.Error("a closed id has a device")
	}
}

func third[T, U any](_ T, _ U, err error) error { return err }

// racing closes an object while other goroutines use it, until all calls return an
// error.
func racing(t *testing.T, ctx context.Context, uses []func() error, end func() error) {
	t.Helper()
	var wg, started sync.WaitGroup
	for _, use := range uses {
		started.Add(1)
		wg.Go(func() {
			started.Done()
			for ctx.Err() == nil {
				err := use()
				if errors.Is(err, uverbs.ErrClosed) {
					return
				}
			}
			t.Error("it goes on after Close")
		})
	}
	started.Wait()
	check(t, end())
	wg.Wait()
}

// TestDeviceCloseRaceConn closes a connection during sends, receives and waits.
func TestDeviceCloseRaceConn(t *testing.T) {
	begin(t)
	ctx := limit(t)
	now := leavesNothing(t)
	for range 10 {
		l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()}}))(t)
		accepted := async(func() (*cm.Conn, error) { return l.Accept(ctx) })
		c := must(cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: small()}))(t)
		s := accepted(t)
		racing(t, ctx, []func() error{
			func() error { return c.PostSendInline(1, uverbs.Signaled, nil) },
			func() error { return c.PostRecv(1, uverbs.SGE{}) },
			func() error { return second(c.SendComp(ctx)) },
			func() error { return second(c.RecvComp(ctx)) },
		}, c.Close)
		racing(t, ctx, []func() error{
			func() error { return s.PostRecv(1, uverbs.SGE{}) },
			func() error { return second(s.RecvComp(ctx)) },
		}, s.Close)
		check(t, l.Close())
	}
	now()
}

// TestDeviceCloseRaceListener closes a listener during Accept, while clients connect.
func TestDeviceCloseRaceListener(t *testing.T) {
	begin(t)
	ctx := limit(t)
	now := leavesNothing(t)
	for range 10 {
		l := must(cm.Listen(deviceIP+":0", nil))(t)
		to := l.Addr().String()
		accept := func() error {
			c, err := l.Accept(ctx)
			if err == nil {
				err = c.Close()
			}
			return err
		}
		ended := make(chan struct{})
		dial := func() error {
			if isDone(ended) {
				return uverbs.ErrClosed
			}
			c, err := cm.Dial(ctx, to, nil)
			if err == nil {
				err = c.Close()
			}
			return err
		}
		racing(t, ctx, []func() error{accept, accept, dial, dial}, func() error {
			defer close(ended)
			return errors.Join(dial(), l.Close())
		})
	}
	now()
}

// TestDeviceCloseRaceID closes an id during commands, and its channel during Next.
func TestDeviceCloseRaceID(t *testing.T) {
	begin(t)
	ctx := limit(t)
	now := leavesNothing(t)
	for range 20 {
		k := must(cm.NewEventChannel())(t)
		i := must(k.CreateID(cm.PSTCP))(t)
		racing(t, ctx, []func() error{
			func() error { return i.ResolveAddr(netip.AddrPort{}, at(deviceIP, 1), 0) },
			func() error { return i.ResolveRoute(0) },
			func() error { return i.CreateQP(nil, small()) },
			func() error { return i.Connect(nil) },
			func() error { return i.Disconnect() },
		}, i.Close)
		racing(t, ctx, []func() error{
			func() error { return second(k.Next(ctx)) },
			func() error { return second(k.Next(ctx)) },
		}, k.Close)
	}
	now()
}

// TestDeviceCloseRaceSync closes a SyncID during its calls.
func TestDeviceCloseRaceSync(t *testing.T) {
	begin(t)
	ctx := limit(t)
	now := leavesNothing(t)
	l := must(cm.Listen(deviceIP+":0", nil))(t)
	for range 20 {
		s := must(cm.NewID(cm.PSTCP))(t)
		racing(t, ctx, []func() error{
			func() error {
				return errors.Join(s.ResolveAddr(ctx, netip.AddrPort{}, l.Addr(), 0), s.ResolveRoute(ctx, 0),
					s.CreateQP(nil, small()), s.Connect(ctx, nil))
			},
		}, func() error {
			<-time.After(rand.N(5 * time.Millisecond)) // at any step
			return s.Close()
		})
	}
	check(t, l.Close())
	now()
}
