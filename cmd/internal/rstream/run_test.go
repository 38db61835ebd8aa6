package rstream

import (
	"context"
	"errors"
	"regexp"
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
func play(ctx context.Context, t *testing.T, p *Program, args string) (server, client *lines, errs [2]error) {
	t.Helper()
	n := verbstest.NewNetwork(t)
	here, there := n.Machine(), n.Machine()
	server, client = newLines(), newLines()
	served := make(chan error, 1)
	there.Run(func() { go func() { served <- p.Run(ctx, strings.Fields(args), server) }() })
	select {
	case <-server.began:
	case err := <-served:
		t.Fatal(err)
	}
	here.Run(func() { errs[0] = p.Run(ctx, append(strings.Fields(args), "-s", there.Addr().String()), client) })
	errs[1] = <-served
	return server, client, errs
}

func limit(t *testing.T) (context.Context, context.CancelCauseFunc) {
	timeout, stop := context.WithTimeout(t.Context(), time.Minute)
	ctx, cancel := context.WithCancelCause(timeout)
	t.Cleanup(func() { cancel(nil); stop() })
	return ctx, cancel
}

// TestRun checks the lines of both sides, with the columns of the C programs.
func TestRun(t *testing.T) {
	const figures = `     [ 0-9.]{8}s[ 0-9.]{10}[ 0-9.]{11}\n`
	const header = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n"
	for _, c := range []struct {
		program *Program
		args    string
		line    string
	}{
		{Rstream, "-S 64 -C 1 -I 300 -T b", `custom    64      1       300     37k` + figures},
		{Rstream, "-S 70000 -C 10 -I 2 -T v", `custom    68k     10      2       2\.6m    .*\n`},
		{Rstream, "-S 1000 -B 4096 -i 0 -T a", `custom    1000    1k      1       1\.9m    .*\n`},
		{Riostream, "-S 64 -C 1 -I 300 -T b", `custom    64      1       300     37k` + figures},
		{Riostream, "-S 70000 -C 10 -I 2 -T v", `custom    68k     10      2       2\.6m    .*\n`},
		{Riostream, "-S 1 -C 3 -I 400 -T v -T b", `custom    1       3       400     2\.3k    .*\n`},
	} {
		t.Run(c.program.name+" "+c.args, func(t *testing.T) {
			ctx, _ := limit(t)
			server, client, errs := play(ctx, t, c.program, c.args)
			for i, out := range []*lines{client, server} {
				if !regexp.MustCompile("^"+header+c.line+"$").MatchString(out.String()) || errs[i] != nil {
					t.Errorf("output %q, error %v", out, errs[i])
				}
			}
		})
	}
}

// TestInterrupted interrupts a server without a client.
func TestInterrupted(t *testing.T) {
	for _, p := range []*Program{Rstream, Riostream} {
		ctx, cancel := limit(t)
		want := errors.New("interrupted by the test")
		verbstest.NewNetwork(t).Machine().Run(func() {
			out := newLines()
			go func() {
				<-out.began
				cancel(want)
			}()
			if err := p.Run(ctx, nil, out); !errors.Is(err, want) {
				t.Errorf("%s: the error is %v", p.name, err)
			}
		})
	}
}
