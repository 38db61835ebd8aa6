package trace_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goverbs/goverbs/internal/sim/connectx/trace"
)

// record returns a trace of a program that got the given numbers.
func record(qp, key uint32, extra, length int) string {
	var b strings.Builder
	tr := trace.New(&b).Device("mlx5_0")
	tr.Emit("command", trace.Text("name", "CREATE_QP"), trace.Object("qpn", "qp", qp))
	for range extra {
		tr.Emit("doorbell", trace.Object("qpn", "qp", qp+99))
	}
	tr.Emit("command", trace.Text("name", "CREATE_QP"), trace.Object("qpn", "qp", qp+1))
	tr.Emit("wqe", trace.Object("qpn", "qp", qp+1), trace.Key("lkey", key), trace.Num("length", length))
	tr.Emit("cqe", trace.Object("qpn", "qp", qp+1), trace.Num("timestamp", key))
	return b.String()
}

func compare(t *testing.T, a, b string, o trace.Options) *trace.Difference {
	t.Helper()
	d, err := trace.Compare(strings.NewReader(a), strings.NewReader(b), o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestSame(t *testing.T) {
	a, b := record(0x40, 0x100, 0, 8), record(0x70, 0x900, 0, 8)
	if d := compare(t, a, b, trace.Options{Ignore: []string{"cqe.timestamp"}}); d != nil {
		t.Error(d)
	}
	if d := compare(t, a, b, trace.Options{Ignore: []string{"timestamp"}}); d != nil {
		t.Error(d)
	}
	if d := compare(t, a, b, trace.Options{Ignore: []string{"wqe.timestamp"}}); d == nil {
		t.Error("a field was ignored in an event of another kind")
	}
	if d := compare(t, a, a, trace.Options{}); d != nil {
		t.Error(d)
	}
	if d := compare(t, "", "", trace.Options{}); d != nil {
		t.Error(d)
	}
}

// TestKinds checks that skipped events leave no gaps in the names.
func TestKinds(t *testing.T) {
	a, b := record(0x40, 0x100, 0, 8), record(0x40, 0x100, 2, 8)
	if d := compare(t, a, b, trace.Options{}); d == nil {
		t.Error("no difference")
	}
	if d := compare(t, a, b, trace.Options{Kinds: []string{"command", "wqe"}}); d != nil {
		t.Error(d)
	}
}

// TestOmit checks that events and fields are selected by the event's name.
func TestOmit(t *testing.T) {
	const create = `{"event":"command","name":"CREATE","a":1,"b":"x#1"}` + "\n"
	const query = `{"event":"command","name":"QUERY","b":"x#2"}` + "\n"
	const other = `{"event":"command","name":"CREATE","a":2,"b":"x#1"}` + "\n"
	for _, c := range []struct {
		a, b string
		o    trace.Options
		same bool
	}{
		{create + query, create, trace.Options{}, false},
		{create + query, create, trace.Options{Omit: []string{"command.QUERY"}}, true},
		{create + query, create, trace.Options{Omit: []string{"event.QUERY", "QUERY"}}, false},
		{create, other, trace.Options{Ignore: []string{"command.QUERY.a", "CREATE.a"}}, false},
		{create, other, trace.Options{Ignore: []string{"command.CREATE.a"}}, true},
	} {
		if d := compare(t, c.a, c.b, c.o); (d == nil) != c.same {
			t.Errorf("%+v: %v", c.o, d)
		}
	}
}

func TestDifference(t *testing.T) {
	a, b := record(0x40, 0x100, 0, 8), record(0x40, 0x100, 0, 9)
	d := compare(t, a, b, trace.Options{Context: 1})
	want := &trace.Difference{
		Line:   [2]int{3, 3},
		Fields: []string{"length"},
		Before: []string{`{"event":"command","device":"mlx5_0","name":"CREATE_QP","qpn":"qp#2"}`},
		Events: [2][]string{
			{`{"event":"wqe","device":"mlx5_0","qpn":"qp#2","lkey":"key#1","length":8}`},
			{`{"event":"wqe","device":"mlx5_0","qpn":"qp#2","lkey":"key#1","length":9}`},
		},
	}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Error(diff)
	}
	text := "line 3 of the first trace and line 3 of the second differ in length\n" +
		"  " + want.Before[0] + "\n- " + want.Events[0][0] + "\n+ " + want.Events[1][0] + "\n"
	if diff := cmp.Diff(text, d.String()); diff != "" {
		t.Error(diff)
	}
}

// TestEnd checks traces of different lengths.
func TestEnd(t *testing.T) {
	a := record(0x40, 0x100, 0, 8)
	b := a + `{"event":"cqe","device":"mlx5_0"}` + "\n"
	d := compare(t, a, b, trace.Options{})
	if d == nil || d.Line != [2]int{5, 5} || len(d.Events[0]) != 0 || len(d.Events[1]) != 1 || len(d.Before) != 3 ||
		!strings.Contains(d.String(), "- (the end)\n") {
		t.Errorf("%+v", d)
	}
}

func TestOrderOfFields(t *testing.T) {
	d := compare(t, `{"event":"x","a":1,"b":2}`, `{"event":"x","b":2,"a":1}`, trace.Options{})
	if d == nil || !cmp.Equal(d.Fields, []string{"the order of fields"}) {
		t.Errorf("%+v", d)
	}
	d = compare(t, `{"event":"x","a":1}`, `{"event":"x","b":2}`, trace.Options{})
	if d == nil || !cmp.Equal(d.Fields, []string{"a", "b"}) {
		t.Errorf("%+v", d)
	}
}

func TestNoTrace(t *testing.T) {
	for _, bad := range []string{
		"hello", "[]", "{}", `{"event":1}`, `{"event":"x"`, `{"a":1,"event":"x"}`, `{"event":"x",}`,
		"{\"event\":\"x\"}\nx",
	} {
		_, err := trace.Compare(strings.NewReader(bad), strings.NewReader(bad), trace.Options{})
		if err == nil || !strings.Contains(err.Error(), "of the first trace") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// FuzzCompare checks that no input panics, and that a trace does not differ
// from itself.
func FuzzCompare(f *testing.F) {
	f.Add(record(0x40, 0x100, 1, 8), record(0x41, 0x101, 0, 9))
	f.Add(`{"event":"x","a":"b#7"}`, `{"event":"x","a":{"b":["c#1"]}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		d, err := trace.Compare(strings.NewReader(a), strings.NewReader(b), trace.Options{})
		if err == nil && d != nil {
			_ = d.String()
		}
		if d, err := trace.Compare(strings.NewReader(a), strings.NewReader(a), trace.Options{}); err == nil && d != nil {
			t.Errorf("a trace differs from itself: %v", d)
		}
	})
}
