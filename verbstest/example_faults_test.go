package verbstest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/verbstest"
)

// The program works although a tenth of all packets is lost: the devices send them again. With the timeout of the
// kernel, that takes a second each.
func ExampleNetwork_AddFault() {
	goTest(func(t testing.TB) {
		net := verbstest.NewNetwork(t, verbstest.Seed(7))
		net.SetTimeouts(verbstest.Timeouts{Ack: 8}) // about a millisecond
		server, client := net.Machine(), net.Machine()
		startService(t, server)
		net.AddFault(verbstest.PacketFault{Action: verbstest.Drop, Probability: 0.1})
		client.Run(func() {
			for range 10 {
				if _, err := ask(t.Context(), server.AddrPort(7471).String(), "hello"); err != nil {
					t.Error(err)
				}
			}
		})
	})
	// Output: PASS
}

// Each command of the kernel fails once. The program must return the error, and close what it has created: the test
// fails if something remains.
func ExampleMachine_FailCommand() {
	goTest(func(t testing.TB) {
		net := verbstest.NewNetwork(t)
		server, client := net.Machine(), net.Machine()
		startService(t, server)
		client.Run(func() {
			for n := 1; ; n++ {
				client.FailCommand(n, unix.ENOMEM)
				_, err := ask(t.Context(), server.AddrPort(7471).String(), "hello")
				if err == nil {
					break // it needs fewer commands
				}
				if !errors.Is(err, unix.ENOMEM) {
					t.Errorf("command %d: %v", n, err)
				}
			}
		})
	})
	// Output: PASS
}

// A client notices that its server has lost power when its device has sent a packet several times in vain.
func ExampleMachine_Kill() {
	goTest(func(t testing.TB) {
		net := verbstest.NewNetwork(t)
		net.SetTimeouts(verbstest.Timeouts{Ack: 8, Reply: 20 * time.Millisecond})
		server, client := net.Machine(), net.Machine()
		startService(t, server)
		client.Run(func() {
			c, err := rdma.Dial(t.Context(), server.AddrPort(7471).String(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			server.Kill()
			_, err = c.Call(t.Context(), []byte("hello"))
			fmt.Println("the connection has ended:", errors.Is(err, rdma.ErrDisconnected))
		})
	})
	// Output:
	// the connection has ended: true
	// PASS
}
