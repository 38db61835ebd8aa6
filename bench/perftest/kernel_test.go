//go:build device

package perftest

import (
	"bytes"
	"context"
	"errors"
	"math"
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

// A message allocates nothing on a kernel's device either: long runs allocate as
// often as short ones, but for what the watch does now and then. On a slow
// machine that may be often: the best of a few runs counts.
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
		mallocs(100)                         // what is made once
		const more, most, tries = 1000, 9, 4 // less than one in a hundred
		least := math.MaxInt
		for range tries {
			if least = min(least, mallocs(100+more)-mallocs(100)); least <= most {
				break
			}
		}
		if least > most {
			t.Errorf("%s: %d allocations for %d messages more", line, least, more)
		}
	}
}
