package rdma_test

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// An endCase is how a side ends a connection on which both sides have sent the same, and have received nothing.
type endCase struct {
	name string
	// end ends the connection of c, one of the two, and returns what is said to the caller.
	end func(p *pair, c *rdma.Conn) error
	// orderly is whether the peer learns that the connection is closed.
	orderly bool
	// reason is what the peer learns, or nil.
	reason *rdma.CloseError
	// fault is whether the end needs a machine in memory.
	fault bool
}

func endCases() []endCase {
	return []endCase{
		{name: "Close", orderly: true, end: func(_ *pair, c *rdma.Conn) error { return c.Close() }},
		{name: "Shutdown", end: func(_ *pair, c *rdma.Conn) error {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			return c.Shutdown(ctx)
		}},
		{name: "CloseWithError", orderly: true, reason: &rdma.CloseError{Code: 7, Text: "too slow\n", Remote: true},
			end: func(_ *pair, c *rdma.Conn) error { return c.CloseWithError(7, "too slow\n") }},
		// The kernel does the same for a program that was killed.
		{name: "disconnect", end: func(_ *pair, c *rdma.Conn) error { return c.CM().ID().ID.Disconnect() }},
		{name: "power", fault: true, end: func(p *pair, c *rdma.Conn) error { p.machine(c).Kill(); return nil }},
		{name: "device", fault: true, end: func(p *pair, c *rdma.Conn) error { p.machine(c).RemoveDevice(); return nil }},
	}
}

// machine returns that of a side.
func (p *pair) machine(c *rdma.Conn) *verbstest.Machine {
	if c == p.client {
		return p.here
	}
	return p.there
}

// A flight is what each side has in flight when the connection ends.
type flight struct {
	name     string
	messages int // that Recv of the peer returns
	begin    func(ctx context.Context, t *testing.T, c *rdma.Conn, token rdma.Token) (done []<-chan error)
}

func flights() []flight {
	send := func(size int) func(context.Context, *testing.T, *rdma.Conn, rdma.Token) []<-chan error {
		return func(ctx context.Context, t *testing.T, c *rdma.Conn, _ rdma.Token) []<-chan error {
			for i := range 3 {
				check(t, c.Send(ctx, numbered(i, size)))
			}
			return nil
		}
	}
	return []flight{
		{"nothing", 0, func(context.Context, *testing.T, *rdma.Conn, rdma.Token) []<-chan error { return nil }},
		{"short messages", 3, send(1000)},
		{"inline messages", 3, send(20)},
		{"long messages", 3, send(5000)},
		{"calls", 2, func(ctx context.Context, t *testing.T, c *rdma.Conn, _ rdma.Token) (done []<-chan error) {
			for i := range 2 {
				sent := c.Stats().Sent
				done = append(done, background(func() error { _, err := c.Call(ctx, numbered(i, 100)); return err }))
				until(t, "the call is sent", func() bool { return c.Stats().Sent > sent })
			}
			return done
		}},
		{"operations", 0, func(ctx context.Context, t *testing.T, c *rdma.Conn, token rdma.Token) []<-chan error {
			done := background(func() error {
				for p := make([]byte, 4096); ; {
					if err := c.Read(ctx, p, token, 0); err != nil {
						return err
					}
				}
			})
			until(t, "operations are done", func() bool { return c.Stats().Operations > 2 })
			return []<-chan error{done}
		}},
	}
}

// TestEnds ends connections in every way on either side, with everything in flight, and checks what the sides are told.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, e := range endCases() {
		if e.fault && onKernel {
			continue
		}
		for _, f := range flights() {
			t.Run(e.name+"/"+f.name+"/client", func(t *testing.T) {
				testEnd(t, e, f, func(p *pair) (_, _ *rdma.Conn) { return p.client, p.server })
			})
			t.Run(e.name+"/"+f.name+"/server", func(t *testing.T) {
				testEnd(t, e, f, func(p *pair) (_, _ *rdma.Conn) { return p.server, p.client })
			})
			t.Run(e.name+"/"+f.name+"/both", func(t *testing.T) { testEndOfBoth(t, e, f) })
		}
	}
}

// inFlight returns a connection with what f begins on both sides.
func (f *flight) inFlight(t *testing.T) (p *pair, ofClient, ofServer []<-chan error) {
	p = machines(t)
	p.allow(verbstest.RemoteAccess, verbstest.Destination)
	if p.net != nil {
		p.net.SetTimeouts(verbstest.Timeouts{Ack: 10})
	}
	o := &rdma.Options{Linger: 500 * time.Millisecond, KeepAlive: 10 * time.Millisecond} // a busy machine may stand still
	p.dial(t, o, o)
	ctx := limit(t)
	region := rdma.NewRegion(4096)
	t.Cleanup(func() { check(t, region.Close()) })
	here := must(p.client.Share(ctx, region, rdma.CanRead))(t)
	there := must(p.server.Share(ctx, region, rdma.CanRead))(t)
	return p, f.begin(ctx, t, p.client, there.Token()), f.begin(ctx, t, p.server, here.Token())
}

func testEnd(t *testing.T, e endCase, f flight, sides func(p *pair) (one, other *rdma.Conn)) {
	p, ofOne, ofOther := f.inFlight(t)
	one, other := sides(p)
	if one == p.server {
		ofOne, ofOther = ofOther, ofOne
	}
	said := within(t, background(func() error { return e.end(p, one) }), "the end")
	received, end := receiveRest(t, other)
	complete := received == f.messages

	// This side.
	sent := f.messages > 0 && f.name != "calls"
	switch {
	case e.name == "Close" && sent && !complete:
		isError(t, said, rdma.ErrUndelivered)
	case e.name == "Shutdown":
		isError(t, said, context.Canceled)
	default:
		check(t, said)
	}
	callsEnd(t, ofOne)

	// The other side.
	switch {
	case e.reason != nil:
		isReason(t, end, e.reason)
		isReason(t, other.Err(), e.reason)
	case end == io.EOF:
		if !complete {
			t.Errorf("io.EOF after %d of %d messages", received, f.messages)
		}
		isError(t, other.Err(), io.EOF)
	case e.orderly && complete:
		t.Errorf("Recv returns %v, want io.EOF", end)
	default:
		isError(t, end, io.ErrUnexpectedEOF)
		isError(t, other.Err(), io.ErrUnexpectedEOF)
	}
	if f.name == "long messages" && complete {
		t.Error("nobody has read the messages, and yet they were received")
	}
	isError(t, other.Err(), rdma.ErrDisconnected)
	for _, done := range ofOther {
		isError(t, within(t, done, "a call of the other side"), rdma.ErrDisconnected)
	}
	switch err := other.Close(); {
	case sent && (e.orderly || f.name == "long messages"):
		isError(t, err, rdma.ErrUndelivered)
	case sent: // they may have arrived, and nothing says that they were not received
		mayLose(t, err)
	default:
		check(t, err)
	}
}

// receiveRest receives until there is an error. The messages have to be the first ones that were sent.
func receiveRest(t *testing.T, c *rdma.Conn) (n int, end error) {
	t.Helper()
	for ctx := limit(t); ; n++ {
		m, err := c.Recv(ctx)
		if err != nil {
			return n, err
		}
		if want := numbered(n, m.Len()); string(m.Bytes()) != string(want) {
			t.Errorf("message %d is another", n)
		}
		m.Release()
	}
}

// callsEnd checks that calls return because the connection has ended.
func callsEnd(t *testing.T, calls []<-chan error) {
	t.Helper()
	for _, done := range calls {
		if err := within(t, done, "a call"); !errors.Is(err, net.ErrClosed) && !errors.Is(err, rdma.ErrDisconnected) {
			t.Errorf("a call returns %v", err)
		}
	}
}

// isReason checks that err has the reason of CloseWithError.
func isReason(t *testing.T, err error, want *rdma.CloseError) {
	t.Helper()
	var got *rdma.CloseError
	if !errors.As(err, &got) || *got != *want || errors.Is(err, io.EOF) {
		t.Errorf("the error is %v, want %v", err, want)
	}
}

// testEndOfBoth ends both sides at once. What has arrived at a side that is closed at the same time may be lost, but an
// error says nothing else.
func testEndOfBoth(t *testing.T, e endCase, f flight) {
	p, ofClient, ofServer := f.inFlight(t)
	ends := []<-chan error{
		background(func() error { return e.end(p, p.client) }), background(func() error { return e.end(p, p.server) })}
	for _, end := range ends {
		err := within(t, end, "the end")
		if err != nil && !errors.Is(err, rdma.ErrUndelivered) && !errors.Is(err, context.Canceled) &&
			!errors.Is(err, rdma.ErrDisconnected) {
			t.Errorf("the end returns %v", err)
		}
	}
	callsEnd(t, append(ofClient, ofServer...))
	for _, c := range []*rdma.Conn{p.client, p.server} {
		mayLose(t, c.Close())
		if err := c.Err(); !errors.Is(err, net.ErrClosed) && !errors.Is(err, rdma.ErrDisconnected) {
			t.Errorf("Err returns %v", err)
		}
	}
}
