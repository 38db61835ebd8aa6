package rdma_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/rdma"
)

// TestRailsRefusedApart has Setup fail on the rails at different times. A call returns the error when each has failed,
// although a further attempt is being made.
func TestRailsRefusedApart(t *testing.T) {
	r := newRailed(t, nil)
	own := errors.New("own error")
	third, ended := make(chan struct{}), make(chan struct{})
	r.onClient(func() {
		n := 0
		cl := r.client(t, rdma.ClientOptions[int]{Setup: func(ctx context.Context, c *rdma.Conn) (int, error) {
			if c.RemoteAddr() == r.there[1].AddrPort(railPort) {
				<-third
				return 0, own
			}
			if n++; n == 3 {
				close(third)
				<-ended
			}
			return 0, own
		}})
		called := background(func() error { return cl.Do(limit(t), request("x")) })
		select {
		case err := <-called:
			isError(t, err, own)
		case <-time.After(patience):
			t.Error("Do does not return")
		}
		close(ended)
		check(t, cl.Close())
	})
}

// TestRailExpired makes a call whose deadline has passed before. It says nothing about a rail.
func TestRailExpired(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{MaxBackoff: time.Hour})
		awaitUp(t, cl, 0, true)
		awaitUp(t, cl, 1, true)
		past, cancel := context.WithDeadline(ctx, time.Now().Add(-time.Second))
		defer cancel()
		isError(t, cl.Do(past, request("late")), context.DeadlineExceeded)
		before := cl.Rails()
		for range 20 {
			check(t, cl.Do(ctx, request("x")))
		}
		after := cl.Rails()
		if a, b := after[0].Calls-before[0].Calls, after[1].Calls-before[1].Calls; a != b {
			t.Errorf("%d and %d calls", a, b)
		}
		check(t, cl.Close())
	})
}

// TestRailLocalAddr has a rail with a local address only: it leads to the address of the client.
func TestRailLocalAddr(t *testing.T) {
	r := newRailed(t, nil)
	ctx := limit(t)
	r.onClient(func() {
		o := rdma.ClientOptions[int]{Rails: []rdma.Rail{{LocalAddr: r.rails[1].LocalAddr}}}
		o.LocalAddr, o.Linger = r.rails[0].LocalAddr, -1
		cl := rdma.NewClient(r.rails[0].Addr, &o)
		until(t, "rail 1 is up", func() bool {
			check(t, cl.Do(ctx, func(context.Context, *rdma.Conn, int) error { return nil }))
			return cl.Rails()[1].Up
		})
		if s := cl.Rails()[1]; s.Addr != r.rails[0].Addr || s.Device != r.here[1].Device() {
			t.Errorf("%+v", s)
		}
		check(t, cl.Close())
	})
}

// TestRailErrorText checks that an error says once of each rail why it has failed, and that the client does not try
// again.
func TestRailErrorText(t *testing.T) {
	r := newRailed(t, nil)
	r.stop()
	ctx := limit(t)
	is := func(err error, parts ...string) {
		t.Helper()
		for _, rail := range r.rails {
			parts = append(parts, fmt.Sprintf("from %v to %s: ", rail.LocalAddr.Addr(), rail.Addr))
		}
		for _, s := range parts {
			if n := strings.Count(err.Error(), s); n != 1 {
				t.Errorf("%q is %d times in %v", s, n, err)
			}
		}
	}
	r.onClient(func() {
		cl := r.client(t, rdma.ClientOptions[int]{Conns: 2})
		var err error
		until(t, "an error of all connections", func() bool {
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			err = cl.Do(short, request("x"))
			s := cl.Rails()
			return s[0].Failed > 1 && s[1].Failed > 1
		})
		isError(t, err, cm.ErrRejected)
		is(err)
		check(t, cl.Close())
		var setups atomic.Int64
		r.listen(t, r.reply, 0)
		cl = r.client(t, rdma.ClientOptions[int]{Setup: func(context.Context, *rdma.Conn) (int, error) {
			setups.Add(1)
			return 0, rdma.ErrVersion
		}})
		err = cl.Do(ctx, request("x"))
		isError(t, err, rdma.ErrVersion)
		is(err, "the client does not try again")
		check(t, cl.Close())
	})
}
