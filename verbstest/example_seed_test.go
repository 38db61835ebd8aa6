package verbstest_test

import (
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// Each seed is another order of packets, completions and events. A test that fails logs its seed; with it in
// VERBSTEST_SEED, Seed(0) repeats the order as far as the program does.
func ExampleSeed() {
	for range 3 {
		goTest(func(t testing.TB) {
			net := verbstest.NewNetwork(t, verbstest.Seed(0))
			server, client := net.Machine(), net.Machine()
			startService(t, server)
			client.Run(func() {
				if _, err := ask(t.Context(), server.AddrPort(7471).String(), "hello"); err != nil {
					t.Error(err)
				}
			})
		})
	}
	// Output:
	// PASS
	// PASS
	// PASS
}
