package main

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/verbstest"
)

// lines is an output that others wait for.
type lines struct {
	mu sync.Mutex
	strings.Builder
	began chan struct{} // closed with the first line
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Len() == 0 {
		close(l.began)
	}
	return l.Builder.Write(b)
}

func newLines() *lines { return &lines{began: make(chan struct{})} }

// play runs a server and a client with the same options, and returns their outputs and errors.
func play(t *testing.T, ctx context.Context, args string) (server, client *lines, errs [2]error) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	here, there := n.Machine(), n.Machine()
	server, client = newLines(), newLines()
	served := make(chan error, 1)
	there.Run(func() { go func() { served <- run(ctx, strings.Fields(args), server) }() })
	select {
	case <-server.began:
	case err := <-served:
		t.Fatal(err)
	}
	here.Run(func() { errs[0] = run(ctx, append(strings.Fields(args), "-s", there.Addr().String()), client) })
	errs[1] = <-served
	return server, client, errs
}

func limit(t *testing.T) (context.Context, context.CancelCauseFunc) {
	timeout, stop := context.WithTimeout(t.Context(), time.Minute)
	ctx, cancel := context.WithCancelCause(timeout)
	t.Cleanup(func() { cancel(nil); stop() })
	return ctx, cancel
}

// TestRun checks the lines of both sides, with the columns of the C program.
func TestRun(t *testing.T) {
	const header = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n"
	for args, want := range map[string]string{
		"-S 64 -C 1 -I 300 -T b":      `custom    64      1       300     37k     [ 0-9.]{8}s[ 0-9.]{10}[ 0-9.]{11}\n`,
		"-S 70000 -C 10 -I 2 -T v":    `custom    68k     10      2       2\.6m    .*\n`,
		"-S 1000 -B 4096 -i 0 -T a":   `custom    1000    1k      1       1\.9m    .*\n`,
		"-I 3 -S 1 -C 5 -T verify -f": "",
	} {
		t.Run(args, func(t *testing.T) {
			if want == "" {
				if _, err := parseOptions(strings.Fields(args)); err == nil {
					t.Error("an option without its argument is accepted")
				}
				return
			}
			ctx, _ := limit(t)
			server, client, errs := play(t, ctx, args)
			for i, out := range []*lines{client, server} {
				if !regexp.MustCompile("^"+header+want+"$").MatchString(out.String()) || errs[i] != nil {
					t.Errorf("output %q, error %v", out, errs[i])
				}
			}
		})
	}
}

// TestInterrupted interrupts a server without a client.
func TestInterrupted(t *testing.T) {
	ctx, cancel := limit(t)
	want := errors.New("interrupted by the test")
	verbstest.NewNetwork(t).Machine().Run(func() {
		out := newLines()
		go func() {
			<-out.began
			cancel(want)
		}()
		if err := run(ctx, nil, out); !errors.Is(err, want) {
			t.Errorf("the error is %v", err)
		}
	})
}

// TestSeries compares the tests with those of the C program.
func TestSeries(t *testing.T) {
	for args, want := range map[string]string{
		"": "64_lat 1 100000, 4k_lat 1 10000, 64k_lat 1 1000, 1m_lat 1 100; " +
			"64_bw 100000 1, 4k_bw 10000 1, 64k_bw 1000 1, 1m_bw 100 1",
		"-S all": "64_lat, 128_lat, 192_lat, 256_lat, 384_lat, 512_lat, 768_lat, 1k_lat, 1.5k_lat, 2k_lat, 3k_lat, 4k_lat, " +
			"6k_lat, 8k_lat, 12k_lat, 16k_lat, 24k_lat, 32k_lat, 48k_lat, 64k_lat, 96k_lat, 128k_lat, 192k_lat, 256k_lat, " +
			"384k_lat, 512k_lat, 768k_lat, 1m_lat, 1.5m_lat, 2m_lat, 3m_lat, 4m_lat, 6m_lat",
	} {
		o, err := parseOptions(strings.Fields(args))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, s := range o.series() {
			var names []string
			for _, x := range s.tests {
				name := x.name
				if args == "" {
					name += " " + strconv.Itoa(x.transfers) + " " + strconv.Itoa(x.iters)
				}
				names = append(names, name)
			}
			all = append(all, strings.Join(names, ", "))
		}
		if got := strings.Join(all, "; "); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %s", args, got)
		}
	}
}
