//go:build device

package perftest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/goverbs/goverbs/provider/all"
)

// both has a server and a client of this process play, by the device's own
// address, which GOVERBS_ADDRESS names.
func both(t *testing.T, name string, n int, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	test, _ := TestNamed(name)
	ends := make(chan error, 2)
	for _, server := range []string{"", os.Getenv("GOVERBS_ADDRESS")} {
		o, err := Parse(test, append(args, "-d", os.Getenv("GOVERBS_DEVICE"), "-n", strconv.Itoa(n)))
		if err != nil {
			t.Fatal(err)
		}
		o.Server = server
		go func() {
			err := Run(ctx, o, new(bytes.Buffer))
			if err != nil {
				cancel()
			}
			ends <- err
		}()
	}
	if err := errors.Join(<-ends, <-ends); err != nil {
		t.Fatal(err)
	}
}

// A message allocates nothing: long runs allocate as often as short ones, but
// for what the watch and the figures do now and then. On a slow machine that may
// be much: the best of a few runs counts.
func TestDeviceNothingAllocated(t *testing.T) {
	for _, line := range []string{"send_lat", "write_lat", "send_bw -s 64 -q 2", "write_bw -s 64 -l 10", "send_bw -s 64 -b --no_lock"} {
		f := strings.Fields(line)
		mallocs := func(n int) int {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			both(t, f[0], n, f[1:]...)
			runtime.ReadMemStats(&after)
			return int(after.Mallocs - before.Mallocs)
		}
		mallocs(100) // what is made once
		const more, tries = 500, 4
		var a, b int
		for range tries {
			if a, b = mallocs(100), mallocs(100+more); b-a <= more/4 {
				break
			}
		}
		if b-a > more/4 {
			t.Errorf("%s: %d allocations for 100 messages, and %d for %d", line, a, b, 100+more)
		}
	}
}
