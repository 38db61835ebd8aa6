package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goverbs/goverbs/cmd/internal/program"
)

// TestUDP runs a client against a server, over UDP on the loopback interface.
func TestUDP(t *testing.T) {
	for _, args := range []string{"-C 50 -S 500 -T e", "-C 50 -S 16 -T e -T b", "-C 50 -S 2056 -T echo", "-C 50 -S 64"} {
		t.Run(args, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			c, err := parse(t, "-T s -b 127.0.0.1 -p 0").listen(ctx)
			if err != nil {
				t.Fatal(err)
			}
			_, port, err := net.SplitHostPort(c.LocalAddr().String())
			if err != nil {
				t.Fatal(err)
			}
			out, served := new(bytes.Buffer), make(chan error, 1)
			go func() { served <- serveOn(ctx, c, out) }()
			var table bytes.Buffer
			err = measure(ctx, parse(t, "-T s -s 127.0.0.1 -p "+port+" "+args), &table)
			cancel(program.ErrInterrupted)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-served; err != nil {
				t.Errorf("server: %v", err)
			}
			if !strings.HasPrefix(out.String(), "client login from 127.0.0.1\n") {
				t.Errorf("the server prints %q", out)
			}
			want := regexp.MustCompile(`^name      bytes   xfers   total       time     Gb/sec    usec/xfer\n` +
				`custom    (500|16|2k|64) +(100|\d\d?) +[\d.]+k? +\d+\.\d\ds +\d+\.\d\d +\d+\.\d\d\n$`)
			if !want.MatchString(table.String()) {
				t.Errorf("the client prints\n%s", &table)
			}
		})
	}
}

func parse(t *testing.T, args string) *options {
	t.Helper()
	o, err := parseOptions(strings.Fields(args))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestOptions checks options that are refused, and what others stand for.
func TestOptions(t *testing.T) {
	for _, args := range []string{"-S 15", "-S 2057", "-C 0", "-T x", "-T so", "-B 1", "peer", "-T"} {
		if _, err := parseOptions(strings.Fields(args)); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
	if c := parse(t, "-T a").config(); c.Polling >= 0 || c.SendBuffer != 1<<20 {
		t.Errorf("async: %+v", c)
	}
	if c := parse(t, "-T block -B 4096").config(); c.Polling != 0 || c.RecvBuffer != 8192 {
		t.Errorf("block: %+v", c)
	}
	if c := parse(t, "-T b -T nonblocking").config(); c.Polling < time.Minute {
		t.Errorf("nonblocking: %+v", c)
	}
}

// TestStandardTests checks names, sizes and counts of the standard tests.
func TestStandardTests(t *testing.T) {
	tests := defaults().tests()
	if len(tests) != 18 || tests[0] != (test{"64_lat", 64, 10000, true}) ||
		tests[8] != (test{"1.5k_lat", 1536, 1000, true}) || tests[9] != (test{"64_bw", 64, 100000, false}) ||
		tests[17] != (test{"1.5k_bw", 1536, 10000, false}) {
		t.Errorf("%v", tests)
	}
	for n, want := range map[int]string{0: "0", 64: "64", 1023: "1023", 1024: "1k", 1536: "1.5k", 10 << 10: "10k",
		15<<10 + 512: "15k", 3<<20 + 1<<19: "3.5m", 5 << 30: "5g"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
	for n, want := range map[int]string{999: "999", 1000: "1k", 1999: "1k", 2_000_000: "2m", 3_000_000_000: "3b"} {
		if got := countText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

// TestInterruptedClient checks that a client whose server does not reply ends with its context.
func TestInterruptedClient(t *testing.T) {
	silent, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	_, port, err := net.SplitHostPort(silent.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	o := parse(t, "-T s -s 127.0.0.1 -p "+port)
	go func() { ended <- measure(ctx, o, new(bytes.Buffer)) }()
	if _, _, err := silent.ReadFrom(make([]byte, 64)); err != nil { // until it has sent its login
		t.Fatal(err)
	}
	cancel(program.ErrInterrupted)
	if err := <-ended; !errors.Is(err, program.ErrInterrupted) {
		t.Errorf("the error is %v", err)
	}
}
