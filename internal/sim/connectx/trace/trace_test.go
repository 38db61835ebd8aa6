package trace_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
	"github.com/goverbs/goverbs/internal/sim/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestLines(t *testing.T) {
	var b strings.Builder
	tr := trace.New(&b)
	tr.Emit("doorbell", trace.Object("qpn", "qp", 0x41), trace.Num("index", uint16(7)), trace.Hex("at", uint32(0x800)))
	tr.Emit("wqe", trace.Object("qpn", "qp", 0x42), trace.Text("op", "SEND \"\\\n\xff"), trace.Bool("signalled", true),
		trace.Bytes("raw", []byte{0, 0xab}))
	tr.Emit("wqe", trace.Object("qpn", "qp", 0x41), trace.Key("lkey", 0x1234), trace.Address("addr", 0x7f0000001000))
	tr.Emit("wqe", trace.Key("lkey", 0), trace.Key("rkey", 0x41), trace.Address("addr", 0x7f0000001000))
	want := `{"event":"doorbell","qpn":"qp#1","index":7,"at":"0x800"}
{"event":"wqe","qpn":"qp#2","op":"SEND \"\\\u000a\u00ff","signalled":true,"raw":"00ab"}
{"event":"wqe","qpn":"qp#1","lkey":"key#1","addr":"addr#1"}
{"event":"wqe","lkey":"key#0","rkey":"key#2","addr":"addr#1"}
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
	for line := range strings.Lines(b.String()) {
		if !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %s", line)
		}
	}
	if tr.Err() != nil {
		t.Error(tr.Err())
	}
}

// TestNames checks that a reused number gets a new name, that two devices have
// separate names, and that a reset starts again.
func TestNames(t *testing.T) {
	var b strings.Builder
	world := trace.New(&b)
	one, two := world.Device("a"), world.Device("b")
	see := func(tr *trace.Tracer, n uint32) { tr.Emit("x", trace.Object("n", "qp", n)) }
	see(one, 1)
	see(one, 2)
	see(two, 2)
	one.Forget("qp", 1)
	one.Forget("cq", 1) // unknown
	see(one, 1)
	see(one, 2)
	one.Reset()
	see(one, 2)
	want := `{"event":"x","device":"a","n":"qp#1"}
{"event":"x","device":"a","n":"qp#2"}
{"event":"x","device":"b","n":"qp#1"}
{"event":"x","device":"a","n":"qp#3"}
{"event":"x","device":"a","n":"qp#2"}
{"event":"x","device":"a","n":"qp#1"}
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", &b, want)
	}
}

// TestAllocations checks that a nil tracer does nothing without allocating, and
// that others allocate only for new names.
func TestAllocations(t *testing.T) {
	raw := make([]byte, 64)
	for _, c := range []struct {
		name string
		tr   *trace.Tracer
	}{{"off", nil}, {"on", trace.New(discard{})}} {
		step := func() {
			c.tr.Device("none")
			c.tr.Emit("wqe", trace.Object("qpn", "qp", 5), trace.Key("lkey", 6), trace.Address("addr", 7),
				trace.Num("index", 8), trace.Text("op", "SEND"), trace.Bytes("raw", raw), trace.Bool("solicited", false))
			c.tr.Forget("none", 1)
		}
		if c.tr != nil {
			step = func() {
				c.tr.Emit("wqe", trace.Object("qpn", "qp", 5), trace.Key("lkey", 6), trace.Bytes("raw", raw),
					trace.Text("op", "SEND"))
			}
		}
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
	var off *trace.Tracer
	off.Reset()
	if off.On() || off.Err() != nil || off.Device("a") != nil {
		t.Error("a nil tracer is on")
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

var errFull = errors.New("disk full")

type full struct{ writes int }

func (f *full) Write(p []byte) (int, error) { f.writes++; return 0, errFull }

func TestWriterFails(t *testing.T) {
	f := &full{}
	tr := trace.New(f)
	device := tr.Device("a")
	device.Emit("x")
	tr.Emit("y")
	if !errors.Is(tr.Err(), errFull) || !errors.Is(device.Err(), errFull) || f.writes != 1 {
		t.Errorf("%d writes, errors %v and %v", f.writes, tr.Err(), device.Err())
	}
}

// TestBound checks the bound on names.
func TestBound(t *testing.T) {
	last := &last{}
	tr := trace.New(last)
	const bound = 1 << 20
	for i := uint64(1); i <= bound+1; i++ {
		tr.Emit("x", trace.Address("a", i))
	}
	if want := `{"event":"x","a":"addr#more"}` + "\n"; last.line != want {
		t.Errorf("got %s, want %s", last.line, want)
	}
	tr.Emit("x", trace.Address("a", bound))
	if want := `{"event":"x","a":"addr#1048576"}` + "\n"; last.line != want {
		t.Errorf("got %s, want %s", last.line, want)
	}
}

type last struct{ line string }

func (l *last) Write(p []byte) (int, error) { l.line = string(p); return len(p), nil }
