package testlog

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const log = "before\n" +
	"\x16=== RUN   TestA\n" +
	"    a_test.go:1: hello\n" +
	"\x16=== RUN   TestA/sub\n" +
	"\x16=== PAUSE TestA/sub\n" +
	"\x16=== CONT  TestA/sub\n" +
	"no newline\x16    --- SKIP: TestA/sub (0.00s)\n" +
	"\x16--- FAIL: TestA (0.01s)\n" +
	"--- PASS: NotFraming (0.00s)\n" +
	"\x16FAIL\n" +
	"exit status 1"

func TestWriter(t *testing.T) {
	want := []Event{
		{Output, "", "before\n"},
		{Run, "TestA", ""},
		{Output, "TestA", "    a_test.go:1: hello\n"},
		{Run, "TestA/sub", ""},
		{Output, "TestA/sub", "no newline\n"},
		{Skip, "TestA/sub", ""},
		{Fail, "TestA", ""},
		{Output, "", "--- PASS: NotFraming (0.00s)\n"},
		{Failed, "", ""},
		{Output, "", "exit status 1\n"},
	}
	for _, chunk := range []int{1, 7, len(log)} {
		var got []Event
		w := NewWriter(func(e Event) { got = append(got, e) })
		for rest := log; rest != ""; {
			n := min(chunk, len(rest))
			if _, err := fmt.Fprint(w, rest[:n]); err != nil {
				t.Fatal(err)
			}
			rest = rest[n:]
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in chunks of %d: %s", chunk, diff)
		}
	}
}

// FuzzWriter checks that no output of a test is lost.
func FuzzWriter(f *testing.F) {
	f.Add(log)
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsRune(text, marker) {
			return
		}
		var out strings.Builder
		w := NewWriter(func(e Event) { out.WriteString(e.Text) })
		if _, err := fmt.Fprint(w, text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSuffix(out.String(), "\n") != strings.TrimSuffix(text, "\n") {
			t.Errorf("%q became %q", text, out.String())
		}
	})
}
