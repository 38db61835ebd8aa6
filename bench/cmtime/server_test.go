package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
)

// requests returns a function that returns n connection requests and then blocks.
func requests(n int) func(context.Context) (*cm.Event, error) {
	return func(ctx context.Context) (*cm.Event, error) {
		if n--; n < 0 {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
		return &cm.Event{Type: cm.EventConnectRequest, ID: &cm.ID{}}, nil
	}
}

// The server reports an error if the client connects more ids than its own -c.
func TestMoreThanAskedFor(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	accepted := 0
	b := &bench{}
	err := b.acceptRequests(ctx, 2, requests(3), func(*conn) error { accepted++; return nil })
	if err == nil || !strings.Contains(err.Error(), "same -c") || accepted != 2 || len(b.conns) != 3 {
		t.Errorf("%v; %d accepted, %d to close", err, accepted, len(b.conns))
	}
}

// An error of accept ends the server, even while it waits for events.
func TestAcceptFails(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cause := errors.New("no QP")
	if err := new(bench).acceptRequests(ctx, 2, requests(1), func(*conn) error { return cause }); err != cause {
		t.Error(err)
	}
}
