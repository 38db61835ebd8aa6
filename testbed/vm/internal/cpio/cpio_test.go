package cpio

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"
)

type item struct {
	name  string
	mode  uint64
	data  string
	major uint64
}

// parse parses an archive, and checks alignment and magic.
func parse(t *testing.T, b []byte) []item {
	t.Helper()
	var items []item
	for off := 0; ; {
		head := string(b[off : off+110])
		if !strings.HasPrefix(head, "070701") {
			t.Fatalf("offset %d: no magic: %q", off, head)
		}
		field := func(i int) int {
			v, err := strconv.ParseUint(head[6+8*i:14+8*i], 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			return int(v)
		}
		size, nameSize := field(6), field(11)
		name := string(b[off+110 : off+110+nameSize-1])
		if b[off+110+nameSize-1] != 0 {
			t.Fatalf("%s: name without end", name)
		}
		off = (off + 110 + nameSize + 3) &^ 3
		if name == trailer {
			if off != len(b) {
				t.Errorf("%d bytes after the trailer", len(b)-off)
			}
			return items
		}
		items = append(items, item{name, uint64(field(1)), string(b[off : off+size]), uint64(field(9))})
		off = (off + size + 3) &^ 3
	}
}

func TestWriter(t *testing.T) {
	var buf bytes.Buffer
	w := NewWriter(&buf)
	for _, err := range []error{
		w.File("/init", 0o755, []byte("hello")),
		w.Dir("dev"),
		w.CharDevice("dev/console", 0o600, 5, 1),
		w.File("a/b/c", 0o644, nil),
		w.Symlink("a/link", "b/c"),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := []item{
		{"init", 0o100755, "hello", 0},
		{"dev", 0o040755, "", 0},
		{"dev/console", 0o020600, "", 5},
		{"a", 0o040755, "", 0},
		{"a/b", 0o040755, "", 0},
		{"a/b/c", 0o100644, "", 0},
		{"a/link", 0o120777, "b/c", 0},
	}
	got := parse(t, buf.Bytes())
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d: got %+v, want %+v", i, got[i], want[i])
		}
	}
	if w.File("late", 0o644, nil) == nil {
		t.Error("a file after Close was accepted")
	}
}

type broken struct{}

var errBroken = errors.New("broken")

func (broken) Write([]byte) (int, error) { return 0, errBroken }

func TestWriterError(t *testing.T) {
	w := NewWriter(broken{})
	if err := w.File("a/b", 0o644, nil); !errors.Is(err, errBroken) {
		t.Errorf("File: %v", err)
	}
	if err := w.Close(); !errors.Is(err, errBroken) {
		t.Errorf("Close: %v", err)
	}
}
