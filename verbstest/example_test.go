package verbstest_test

import (
	"bytes"
	"context"
	"errors"
	"testing"

	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// The program: a service, and a client that asks it.

func serveCalls(ctx context.Context, l *rdma.Listener) error {
	return l.Serve(ctx, func(ctx context.Context, c *rdma.Conn) error { return c.ServeCalls(ctx, bytes.ToUpper) })
}

func ask(ctx context.Context, addr, request string) (reply string, err error) {
	c, err := rdma.Dial(ctx, addr, nil)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	m, err := c.Call(ctx, []byte(request))
	if err != nil {
		return "", err
	}
	return string(m.Copy()), nil
}

// testService is TestService(t *testing.T) in a test file.
func testService(t testing.TB) {
	net := verbstest.NewNetwork(t)
	server, client := net.Machine(), net.Machine()
	startService(t, server)
	client.Run(func() {
		reply, err := ask(t.Context(), server.AddrPort(7471).String(), "hello")
		if reply != "HELLO" || err != nil {
			t.Errorf("the reply is %q, %v", reply, err)
		}
	})
}

// startService runs the service on a machine until the test ends.
func startService(t testing.TB, m *verbstest.Machine) {
	m.Run(func() {
		l, err := rdma.Listen(":7471", nil) // before clients dial
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- serveCalls(ctx, l) }() // on the same machine
		t.Cleanup(func() {
			stop()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	})
}

// A program and its test. The program does not know that the devices are in memory.
func Example() {
	goTest(testService)
	// Output: PASS
}
