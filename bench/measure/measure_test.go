package measure

import (
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
)

// A fake counts messages. Its echoes collect garbage now and then.
type fake struct {
	sent, received int
	closed         atomic.Int32
}

func (f *fake) Send(int) error {
	f.sent++
	return nil
}

func (f *fake) Recv() error {
	if f.received++; f.received%150 == 0 {
		runtime.GC()
	}
	return nil
}

func (f *fake) Close() error {
	f.closed.Add(1)
	return nil
}

func names(out string) string {
	var all []string
	for line := range strings.Lines(out) {
		name, _, _ := strings.Cut(line, " ")
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// Each figure has a line. A quantile of which there are not enough times has none.
func TestRun(t *testing.T) {
	for tail, want := range map[int]string{0: "small 64KiB large connect many",
		100: "small.p50 small.p99 churned.p50 churned.p99 collections connect.p50 many.p50"} {
		f, dialed := &fake{}, 0
		var b strings.Builder
		err := Run(&b, 2, tail, &Level{Conn: f, Dial: func() (Conn, error) { dialed++; return f, nil },
			Close: func() error { return nil }})
		if got := names(b.String()); err != nil || got != want {
			t.Errorf("tail %d: %q, %v", tail, got, err)
		}
		if f.sent == 0 || f.sent != f.received || int(f.closed.Load()) != dialed+1 || dialed <= ManyConns {
			t.Errorf("tail %d: %d sent, %d received, %d closed, %d dialed", tail, f.sent, f.received, f.closed.Load(), dialed)
		}
	}
}

// A level that cannot connect to another process has no idle connections.
func TestIdleRefused(t *testing.T) {
	f := &fake{}
	err := beside(&strings.Builder{}, &Level{Conn: f, Close: func() error { return nil }}, 1, 1)
	if err == nil || !strings.Contains(err.Error(), "idle") || f.closed.Load() != 1 {
		t.Errorf("%v, %d closed", err, f.closed.Load())
	}
}

// The error of an operation ends the run, and names it.
func TestRunFails(t *testing.T) {
	f, failure := &fake{}, errors.New("no device")
	for _, tail := range []int{0, 10} {
		err := Run(&strings.Builder{}, 1, tail, &Level{Conn: f, Read: func() error { return failure },
			Close: func() error { return nil }})
		if !errors.Is(err, failure) || !strings.Contains(err.Error(), "read") {
			t.Errorf("tail %d: %v", tail, err)
		}
	}
}

// Only the named operations are measured, and a name of none is refused.
func TestOnly(t *testing.T) {
	f := &fake{}
	l := &Level{Conn: f, Dial: func() (Conn, error) { return f, nil }, Close: func() error { return nil }}
	if err := restrict("small,read", []*Level{l}); err == nil || !strings.Contains(err.Error(), `"read"`) {
		t.Errorf("an operation that the level does not have: %v", err)
	}
	if err := restrict("small,connect", []*Level{l}); err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := Run(&b, 2, 0, l); err != nil || names(b.String()) != "small connect" {
		t.Errorf("%q, %v", b.String(), err)
	}
}
