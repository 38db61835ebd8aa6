package verbstest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// The server does not release a message. The test fails, with the line that has received it.
func ExampleRule() {
	goTest(func(t testing.TB) {
		verbstest.New(t) // one machine, whose address is 192.0.2.1
		l, err := rdma.Listen(":7471", nil)
		if err != nil {
			t.Fatal(err)
		}
		client, err := rdma.Dial(t.Context(), "192.0.2.1:7471", nil)
		if err != nil {
			t.Fatal(err)
		}
		server, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Send(t.Context(), []byte("hello")); err != nil {
			t.Error(err)
		}
		if m, err := server.Recv(t.Context()); err == nil {
			fmt.Printf("%s\n", m.Bytes())
		}
		if err := errors.Join(client.Close(), server.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	})
	// Output:
	// hello
	// verbstest: machine 1: not-released: a message from 192.0.2.1:40001, received at example_rule_test.go:31
	// FAIL
}
