package devicetest

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/internal/race"
)

// TestDeviceBurst dials a listener with default limits many times at once, on machines in memory more often than the
// kernel's backlog allows. The test checks that each client is connected and none refused, however busy the machine is.
func TestDeviceBurst(t *testing.T) {
	begin(t)
	clients := 300 // an emulated kernel creates some tens of queue pairs a second
	if inMemory && !race.Enabled {
		clients = 2000
	}
	now := leavesNothing(t)
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: tiny()}}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- serveAndClose(ctx, l) }()
	start := time.Now()
	var dials sync.WaitGroup
	for range clients {
		dials.Go(func() {
			c, err := cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: tiny()})
			if err == nil {
				err = c.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	dials.Wait()
	t.Logf("%d clients in %v", clients, time.Since(start))
	check(t, l.Close())
	if err := <-served; !errors.Is(err, cm.ErrListenerClosed) {
		t.Error(err)
	}
	now()
}

// TestDeviceRefused checks that a client reads why a listener refuses it: a limit, which is named, or that it is busy.
func TestDeviceRefused(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	ctx := limit(t)
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()}, MaxConnsPerPeer: 1}))(t)
	c := must(cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: small()}))(t)
	refused := second(cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: small()}))
	isError(t, refused, []error{cm.ErrRejected, cm.ErrServerLimit}, "at most 1 for one address")
	s := must(l.Accept(ctx))(t)
	check(t, s.Close())
	<-c.Disconnected()
	check(t, c.Close())
	check(t, l.Close())

	l = must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{QP: small()},
		ManualAccept: true, Backlog: 1}))(t)
	results := make(chan error, 3)
	for range cap(results) {
		go func() { results <- second(cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: small()})) }()
	}
	for range cap(results) - 1 {
		isError(t, <-results, []error{cm.ErrRejected, cm.ErrServerBusy}, "1 requests wait")
	}
	check(t, l.Close())
	if err := <-results; !errors.Is(err, cm.ErrRejected) || errors.Is(err, cm.ErrServerBusy) ||
		strings.Contains(err.Error(), "busy") {
		t.Errorf("the request that waited: %v", err)
	}
	now()
}

// TestDeviceSelfConnect dials a listener before it accepts, in one goroutine, and sends a message before Accept.
func TestDeviceSelfConnect(t *testing.T) {
	begin(t)
	now := leavesNothing(t)
	ctx := limit(t)
	o := &cm.Options{QP: small(), Setup: func(c *cm.Conn) error { return c.PostRecv(7) }}
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: *o}))(t)
	for range 3 {
		c := must(cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: small()}))(t)
		check(t, c.PostSend(1, 0))
		s := must(l.Accept(ctx))(t)
		if wc := must(s.RecvComp(ctx))(t); wc.WRID != 7 {
			t.Errorf("completion %+v", wc)
		}
		check(t, c.Close())
		<-s.Disconnected()
		check(t, s.Close())
	}
	unaccepted := must(cm.Dial(ctx, l.Addr().String(), &cm.Options{QP: small()}))(t)
	check(t, l.Close())
	<-unaccepted.Disconnected()
	check(t, unaccepted.Close())
	now()
}
