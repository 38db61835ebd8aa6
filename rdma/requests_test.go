package rdma

import (
	"errors"
	"io"
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// honestPair returns a connection whose sides both have options o.
func honestPair(t testing.TB, o *Options) (client, server *Conn) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	here, there := n.Machine(), n.Machine()
	ctx := bounded(t)
	accepted := make(chan error, 1)
	var l *Listener
	there.Run(func() {
		var err error
		l, err = Listen(":7471", listening(o))
		good(t, l, err)
		go func() { var err error; server, err = l.Accept(ctx); accepted <- err }()
	})
	here.Run(func() {
		var err error
		client, err = Dial(ctx, there.AddrPort(7471).String(), o)
		good(t, client, err)
	})
	if err := errors.Join(<-accepted, l.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(client.Close(), server.Close()); err != nil {
			t.Error(err)
		}
	})
	return client, server
}

// requestsPosted returns how many requests c has posted to its send queue.
func (c *Conn) requestsPosted() uint64 {
	c.mu.Lock()
	defer c.unlock()
	return c.tail
}

// TestRequestsOfMessages checks that messages and calls that go back and forth need one request each: credits travel
// with them.
func TestRequestsOfMessages(t *testing.T) {
	for _, depth := range []int{4, 32} {
		for _, n := range []int{64, 2000} {
			client, server := honestPair(t, &Options{Depth: depth, KeepAlive: -1})
			ctx := bounded(t)
			served := make(chan error, 1)
			go func() {
				for {
					m, err := server.Recv(ctx)
					if err != nil {
						served <- err
						return
					}
					if m.IsCall() {
						err = m.Reply(ctx, m.Bytes())
					} else {
						err = server.Send(ctx, m.Bytes())
					}
					m.Release()
					if err != nil {
						served <- err
						return
					}
				}
			}()
			const rounds = 200
			exchange := map[string]func() (Message, error){
				"message": func() (Message, error) {
					if err := client.Send(ctx, make([]byte, n)); err != nil {
						return Message{}, err
					}
					return client.Recv(ctx)
				},
				"call": func() (Message, error) { return client.Call(ctx, make([]byte, n)) },
			}
			for name, f := range exchange {
				here, there := client.requestsPosted(), server.requestsPosted()
				for range rounds {
					m, err := f()
					good(t, m, err)
					m.Release()
				}
				here, there = client.requestsPosted()-here, server.requestsPosted()-there
				if here != rounds || there != rounds {
					t.Errorf("depth %d, %s of %d bytes: %d and %d requests for %d", depth, name, n, here, there, rounds)
				}
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			if err := <-served; err != io.EOF {
				t.Error(err)
			}
		}
	}
}
