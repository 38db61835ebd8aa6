//go:build device && soak

package devicetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cm"
	"github.com/goverbs/goverbs/uverbs"
	"golang.org/x/sys/unix"
)

// soakRounds returns the number of rounds that the environment sets.
func soakRounds(t *testing.T) int {
	t.Helper()
	rounds, err := strconv.Atoi(os.Getenv("GOVERBS_SOAK_ROUNDS"))
	if err != nil {
		t.Fatalf("set GOVERBS_SOAK_ROUNDS to a number: %v", err)
	}
	return rounds
}

// used has the resources that this process uses, and those that the kernel uses for all processes.
type used struct {
	rss        int // KiB
	fds        int
	goroutines int
	objects    map[string]uint64
}

func usage(t *testing.T) used {
	t.Helper()
	debug.FreeOSMemory()
	status := string(must(os.ReadFile("/proc/self/status"))(t))
	_, rest, _ := strings.Cut(status, "VmRSS:")
	rss := must(strconv.Atoi(strings.Fields(rest)[0]))(t)
	return used{rss, count(t, "fd"), runtime.NumGoroutine(), kernelObjects(t)}
}

// soaked runs rounds and compares the resources in use at the end with those in use after a tenth of the rounds.
func soaked(t *testing.T, rounds int, round func(n int)) {
	t.Helper()
	warm := max(rounds/10, 1)
	for n := range warm {
		round(n)
	}
	before := usage(t)
	for n := range rounds {
		round(n)
		if (n+1)%1000 == 0 {
			t.Logf("%d rounds: %v", n+1, usage(t))
		}
	}
	sameObjects(t, before.objects)
	eventually(t, "the end of goroutines", func() bool { return runtime.NumGoroutine() <= before.goroutines })
	after := usage(t)
	t.Logf("before %v, after %d rounds %v", before, rounds, after)
	const slack = 4 << 10 // KiB: variation of the heap
	if after.rss > before.rss+slack {
		t.Errorf("resident memory grew from %d to %d KiB", before.rss, after.rss)
	}
	if after.fds != before.fds || !maps.Equal(after.objects, before.objects) {
		t.Errorf("%d descriptors and %v, before %d and %v", after.fds, after.objects, before.fds, before.objects)
	}
}

// withDeadline limits a round without leaving anything in the test.
func withDeadline(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return f(ctx)
}

// TestDeviceSoakDial dials, transfers and disconnects many times, and sometimes joins a
// group.
func TestDeviceSoakDial(t *testing.T) {
	rounds := soakRounds(t)
	var serving echo // one connection at a time
	l := must(cm.Listen(deviceIP+":0", &cm.ListenOptions{Options: cm.Options{Setup: serving.setUp}}))(t)
	ended := make(chan error, 1)
	go func() {
		err := serving.all(l)
		if err != nil {
			err = errors.Join(fmt.Errorf("the server has ended: %w", err), l.Close())
		}
		ended <- err
	}()
	soaked(t, rounds, func(n int) {
		if err := withDeadline(func(ctx context.Context) error {
			if n%10 == 0 {
				g, err := cm.JoinMulticast(ctx, "239.1.2.40", &cm.Options{LocalAddr: at(deviceIP, 0)})
				if err != nil {
					return err
				}
				if err := g.Close(); err != nil {
					return err
				}
			}
			return dialOnce(ctx, l.Addr().String(), fmt.Sprintf("round %d", n))
		}); err != nil {
			t.Fatal(errors.Join(err, l.Close(), <-ended))
		}
	})
	check(t, l.Close())
	check(t, <-ended)
}

// dialOnce establishes a connection, exchanges a message and ends it.
func dialOnce(ctx context.Context, to, text string) error {
	e := &echo{}
	c, err := cm.Dial(ctx, to, &cm.Options{Setup: func(c *cm.Conn) (err error) {
		e.c = c
		e.mr, err = c.AllocMsgs(2 * echoSize)
		return err
	}})
	if err == nil {
		err = errors.Join(e.ask(ctx, text), c.Shutdown(ctx))
	}
	if e.mr != nil {
		err = errors.Join(err, e.mr.Close())
	}
	return err
}

// setUp allocates the memory of a connection and posts the first receive.
func (e *echo) setUp(c *cm.Conn) (err error) {
	e.c = c
	if e.mr, err = c.AllocMsgs(2 * echoSize); err != nil {
		return err
	}
	return e.post()
}

// all serves one connection after the other until the listener is closed.
func (e *echo) all(l *cm.Listener) error {
	for {
		err := withDeadline(func(ctx context.Context) error {
			c, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			return errors.Join(e.serve(ctx), e.mr.Close(), c.Close())
		})
		if errors.Is(err, uverbs.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// A scope is a testing.TB for part of a test, without the record of a subtest.
type scope struct {
	testing.TB
	cleanups []func()
}

// Cleanup adds a function to run at the end of the scope.
func (s *scope) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (s *scope) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
}

// TestDeviceSoakKill repeats TestDeviceClientKilled and TestDeviceServerKilled at all steps.
func TestDeviceSoakKill(t *testing.T) {
	soaked(t, max(soakRounds(t)/200, 1), func(int) {
		s := &scope{TB: t}
		defer s.end()
		for _, step := range clientSteps {
			clientKilled(s, step)
		}
		for _, step := range serverSteps {
			serverKilled(s, step)
		}
	})
}

// TestDeviceSoakUnreachable connects to an unused address behind an interface that does not resolve neighbors. The
// kernel tries for a minute or more.
func TestDeviceSoakUnreachable(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	start := time.Now()
	_, err := cm.Dial(ctx, "10.9.0.77:4000", nil)
	isError(t, err, []error{cm.ErrUnreachable, unix.ETIMEDOUT}, "10.9.0.77:4000", "4791")
	t.Logf("given up after %v", time.Since(start))
}
