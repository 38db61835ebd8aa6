package main

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
)

// TestConnected checks that the test continues only when all connections are established.
func TestConnected(t *testing.T) {
	opt := defaults()
	opt.connections = 3
	s := &test{opt: opt, out: io.Discard, pending: 3, connected: make(chan struct{})}
	for i := range 3 {
		select {
		case <-s.connected:
			t.Fatalf("continued with %d of 3 connections", i)
		default:
		}
		if err := s.handle(&cm.Event{Type: cm.EventEstablished}); err != nil {
			t.Fatal(err)
		}
	}
	<-s.connected
	if s.up != 3 {
		t.Errorf("%d connections are up", s.up)
	}
}

// TestFailureEvents compares the lines with those of the C program.
func TestFailureEvents(t *testing.T) {
	for _, c := range []struct {
		e    cm.Event
		want string
		err  error
	}{
		{cm.Event{Type: cm.EventRejected, Status: 8}, "cmatose: event: RDMA_CM_EVENT_REJECTED, error: 8\n", cm.ErrRejected},
		{cm.Event{Type: cm.EventUnreachable, Status: -110}, "cmatose: event: RDMA_CM_EVENT_UNREACHABLE, error: -110\n",
			cm.ErrUnreachable},
		{cm.Event{Type: cm.EventDeviceRemoval}, "", uverbs.ErrDeviceGone},
		{cm.Event{Type: cm.EventTimewaitExit}, "", nil},
	} {
		var b strings.Builder
		s := &test{opt: defaults(), out: &b}
		if err := s.handle(&c.e); !errors.Is(err, c.err) {
			t.Errorf("%v: error %v", c.e.Type, err)
		}
		if b.String() != c.want {
			t.Errorf("%v: printed %q, want %q", c.e.Type, b.String(), c.want)
		}
	}
}

func TestExplain(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{uverbs.WCWRFlushErr, "the peer has disconnected"},
		{cm.ErrDisconnected, "the peer has disconnected"},
		{uverbs.WCRNRRetryExcErr, "use the same -C at both ends"},
		{uverbs.WCLocLenErr, "use the same -S at both ends"},
		{uverbs.WCRemInvReqErr, "use the same -S at both ends"},
		{uverbs.WCLocQPOpErr, "use the same -S at both ends"},
		{uverbs.WCRemOpErr, "use the same -S at both ends"},
	} {
		if err := explain(c.err); !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.err, err)
		}
	}
	if err := explain(io.EOF); err != io.EOF {
		t.Error(err)
	}
}
