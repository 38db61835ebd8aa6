package perftest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/goverbs/goverbs/uverbs"
)

// listening is an output that closes ready when the server first prints, which is when
// it listens.
type listening struct {
	bytes.Buffer
	once  sync.Once
	ready chan struct{}
}

func (l *listening) Write(b []byte) (int, error) {
	l.once.Do(func() { close(l.ready) })
	return l.Buffer.Write(b)
}

// play runs a server and a client on devices that find opens, and returns their output.
// The client starts when the server listens.
func play(t *testing.T, host, command string, find [2]func(name string) (*uverbs.Context, error)) (said [2]string) {
	t.Helper()
	said, err := try(t, host, command, find)
	if err != nil {
		t.Fatalf("%v\n%s\n%s", err, said[0], said[1])
	}
	return said
}

// try is play with runs that may fail.
func try(t *testing.T, host, command string, find [2]func(name string) (*uverbs.Context, error)) ([2]string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	f := strings.Fields(command)
	test, _ := TestNamed(f[0])
	args := append(f[1:], "-p", strconv.Itoa(freePort(t)))
	server, client := &listening{ready: make(chan struct{})}, new(bytes.Buffer)
	ends := make(chan error, 2)
	begin := func(end int, host string, out io.Writer) {
		o, err := Parse(test, args)
		if err != nil {
			t.Fatal(err)
		}
		o.Server = host
		go func() {
			err := run(ctx, o, out, find[end])
			if err != nil {
				cancel()
				err = fmt.Errorf("end %d: %w", end, err)
			}
			ends <- err
		}()
	}
	begin(0, "", server)
	select {
	case <-server.ready:
		begin(1, host, client)
	case <-ctx.Done():
		ends <- ctx.Err()
	}
	err := errors.Join(<-ends, <-ends)
	return [2]string{server.String(), client.String()}, err
}

// play runs a test on the two devices.
func (p *pair) play(t *testing.T, command string) (said [2]string) {
	t.Helper()
	said = play(t, "127.0.0.1", command, p.open())
	p.close(t)
	return said
}

// try runs a test that may fail.
func (p *pair) try(t *testing.T, command string) error {
	t.Helper()
	_, err := try(t, "127.0.0.1", command, p.open())
	p.close(t)
	return err
}

func (p *pair) open() [2]func(string) (*uverbs.Context, error) {
	return [2]func(string) (*uverbs.Context, error){p.cards[0].open, p.cards[1].open}
}

func (p *pair) close(t *testing.T) {
	t.Helper()
	for _, c := range p.cards {
		c.close(t)
	}
}

// A count says what the devices of a test must see: n messages on each of qps QPs,
// every every-th of them signaled, posted in lists.
type count struct {
	n, qps, every, list int
	step                int  // bytes from one message to the next
	server, client      bool // whether this end posts requests
	receives            bool // whether messages consume receives
	turns               int  // the end that is first, if the ends take turns; -1: they do not
}

// TestLoops checks the requests of the loops as the devices of both ends see them.
func TestLoops(t *testing.T) {
	const alone = -1
	for command, want := range map[string]count{
		"send_lat -n 20":                   {20, 1, 1, 1, 0, true, true, true, 1},
		"send_lat -n 20 -e -s 64":          {20, 1, 1, 1, 0, true, true, true, 1},
		"send_lat -n 20 -I 64 -s 64":       {20, 1, 1, 1, 0, true, true, true, 1},
		"write_lat -n 20":                  {20, 1, 1, 1, 0, true, true, false, 0},
		"write_lat -n 20 --write_with_imm": {20, 1, 1, 1, 0, true, true, true, 0},
		"read_lat -n 20":                   {20, 1, 1, 1, 0, false, true, false, alone},
		"atomic_lat -n 20":                 {20, 1, 1, 1, 0, false, true, false, alone},

		"send_bw -n 100 -s 64 -Q 1":                        {100, 1, 1, 1, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -Q 7":                        {100, 1, 7, 1, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -Q 100":                      {100, 1, 100, 1, 64, false, true, true, alone},
		"send_bw -n 250 -s 64 -Q 100 -t 110 -r 9":          {250, 1, 100, 1, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -q 2 -Q 7":                   {100, 2, 7, 1, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -q 2 -Q 7 -N -e":             {100, 2, 7, 1, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -l 10":                       {100, 1, 10, 10, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -l 10 -Q 5 -q 2":             {100, 2, 5, 10, 64, false, true, true, alone},
		"send_bw -n 100 -s 64 -b -Q 7 -r 10":               {100, 1, 7, 1, 64, true, true, true, alone},
		"send_bw -n 100 -s 64 -b -q 2 -Q 7 -e":             {100, 2, 7, 1, 64, true, true, true, alone},
		"send_bw -n 100 -s 9000 -r 20 --recv_post_list=10": {100, 1, 1, 1, 0, false, true, true, alone},

		"write_bw -n 100 -s 64 -q 2 -Q 7 --mr_per_qp":       {100, 2, 7, 1, 64, false, true, false, alone},
		"write_bw -n 100 -s 64 -q 2 -Q 7 -N":                {100, 2, 7, 1, 64, false, true, false, alone},
		"write_bw -n 100 -s 64 -b -Q 7 -t 10":               {100, 1, 7, 1, 64, true, true, false, alone},
		"write_bw -n 100 -s 64 -l 10 --reversed":            {100, 1, 10, 10, 64, true, false, false, alone},
		"write_bw -n 100 -s 64 -q 3 --write_with_imm -r 20": {100, 3, 100, 1, 64, false, true, true, alone},
		"read_bw -n 100 -s 64 -q 2 -Q 7":                    {100, 2, 7, 1, 64, false, true, false, alone},
		"read_bw -n 100 -s 64 -b -e":                        {100, 1, 100, 1, 64, true, true, false, alone},
		"atomic_bw -n 100 -q 2 -Q 7":                        {100, 2, 7, 1, 64, false, true, false, alone},
	} {
		if !t.Run(strings.ReplaceAll(command, " ", ""), func(t *testing.T) {
			p := newPair()
			said := p.play(t, command)
			if f := rowOf(said[1]); len(f) < 2 || f[1] != strconv.Itoa(want.n*want.qps) {
				t.Errorf("%v are not of %d messages", f, want.n*want.qps)
			}
			for end, sends := range []bool{want.server, want.client} {
				if n := p.cards[end].unpolled; n > 0 {
					t.Errorf("end %d: %d completions were left", end, n)
				}
				for _, q := range p.cards[end].qps {
					want.check(t, p, q, sends)
				}
			}
			want.checkTurns(t, p)
		}) {
			return // the others may fail as slowly
		}
	}
}

// rowOf returns the row of results, which is the last line but one.
func rowOf(report string) []string {
	lines := strings.Split(strings.TrimSpace(report), "\n")
	return strings.Fields(lines[max(len(lines)-2, 0)])
}

// check checks what was posted to a QP. Each QP sends from its part of the first half
// of the memory and receives into its part of the second half. Short messages of a
// bandwidth test use a page of it cyclically.
func (w count) check(t *testing.T, p *pair, q *pairQP, sends bool) {
	t.Helper()
	own, peer := q.c.regions[0], p.cards[1-q.c.end].regions[0]
	share, before := own[1]/2/uint64(w.qps), uint64(q.at)
	if len(q.c.regions) > 1 {
		own, peer = q.c.regions[q.at], p.cards[1-q.c.end].regions[q.at]
		share, before = own[1]/2, 0
	}
	first, second := before*share, own[1]/2+before*share
	sent, posted := 0, 0
	for _, l := range p.log {
		if l.end != q.c.end || l.qp != q.at {
			continue
		}
		where := func(what string, n int, at, begin uint64) {
			if at != 0 && at != begin+uint64(n*w.step%os.Getpagesize()) {
				t.Fatalf("end %d, QP %d, %s %d: at %#x, and the first at %#x", l.end, l.qp, what, n+1, at, begin)
			}
		}
		if l.recv {
			where("receive", posted, l.at, own[0]+second)
			posted++
			continue
		}
		where("request", sent, l.at, own[0]+first)
		where("destination", sent, l.to, peer[0]+second)
		if signaled := w.list > 1 && (sent%w.list+1)%w.every == 0 ||
			w.list == 1 && ((sent+1)%w.every == 0 || sent == w.n-1); l.signaled != signaled {
			t.Errorf("end %d, QP %d: request %d of %d is signaled: %v", l.end, l.qp, sent+1, w.n, l.signaled)
		}
		sent++
	}
	if want := map[bool]int{true: w.n}[sends]; sent != want || q.sentFree != want {
		t.Errorf("end %d, QP %d: %d requests, %d of them completed, not %d", q.c.end, q.at, sent, q.sentFree, want)
	}
	came := q.peer().sent
	if !w.receives {
		came = 0
	}
	if posted != came || q.postedFree != came {
		t.Errorf("end %d, QP %d: %d receives, %d of them completed, not %d", q.c.end, q.at, posted, q.postedFree, came)
	}
}

// checkTurns checks the order of the two ends.
func (w count) checkTurns(t *testing.T, p *pair) {
	t.Helper()
	n := 0
	for _, l := range p.log {
		if l.recv {
			continue
		}
		if n == 0 && w.client && l.end != 1 && w.turns < 0 && w.receives {
			t.Error("the server does not wait for the client's first message")
		}
		if w.turns >= 0 && l.end != (w.turns+n)%2 {
			t.Fatalf("message %d is end %d's", n+1, l.end)
		}
		n++
	}
}

// allocates fails the test if a message allocates: a long run must allocate as often as
// a short one, except for the ticks of the watchdogs. To tolerate other allocations of
// the runtime, the minimum of a few runs is used, and one for 20 messages is permitted:
// fewer than if each poll allocated.
func allocates(t *testing.T, more int, run func(n int)) {
	t.Helper()
	mallocs := func(n int) (int, time.Duration) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		began := time.Now()
		run(n)
		took := time.Since(began)
		runtime.ReadMemStats(&after)
		return int(after.Mallocs - before.Mallocs), took
	}
	const few, tries, chance = 100, 5, 20
	mallocs(few) // allocations of the first run only
	short, long := math.MaxInt, math.MaxInt
	for range tries {
		n, _ := mallocs(few)
		short = min(short, n)
		n, took := mallocs(few + more)
		long = min(long, n-2*int(took/tick))
		if long-short < max(more/20, chance) {
			return
		}
	}
	t.Errorf("%d allocations for %d messages, and %d for %d", short, few, long, few+more)
}

func TestNothingAllocated(t *testing.T) {
	if raceEnabled {
		t.Skip("allocations cannot be counted under the race detector")
	}
	for _, command := range []string{"send_lat", "write_lat --write_with_imm", "read_lat", "send_bw -s 64 -q 2",
		"write_bw -s 64 -l 10", "send_bw -s 64 -b --no_lock"} {
		t.Run(strings.ReplaceAll(command, " ", ""), func(t *testing.T) {
			allocates(t, 2000, func(n int) {
				p := newPair()
				p.log = nil
				p.play(t, command+" -n "+strconv.Itoa(n))
			})
		})
	}
}
