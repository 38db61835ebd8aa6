package ends_test

import (
	"context"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cm"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/rdma"
	"github.com/goverbs/goverbs/uverbs"
)

const document = "../../docs/levels.md"

// errCause is what the tests cancel contexts with.
var errCause = errors.New("the operator said so")

// identities are the errors that the table may list.
var identities = map[string]error{
	"`net.ErrClosed`":            net.ErrClosed,
	"`os.ErrDeadlineExceeded`":   os.ErrDeadlineExceeded,
	"`context.DeadlineExceeded`": context.DeadlineExceeded,
	"`context.Canceled`":         context.Canceled,
	"the cause":                  errCause,
	"`io.EOF`":                   io.EOF,
	"`io.ErrUnexpectedEOF`":      io.ErrUnexpectedEOF,
	"`uverbs.ErrClosed`":         uverbs.ErrClosed,
	"`uverbs.ErrDeviceGone`":     uverbs.ErrDeviceGone,
	"`uverbs.WCRetryExcErr`":     uverbs.WCRetryExcErr,
	"`cm.ErrDisconnected`":       cm.ErrDisconnected,
	"`cm.ErrListenerClosed`":     cm.ErrListenerClosed,
	"`cm.ErrRejected`":           cm.ErrRejected,
	"`cm.ErrServerBusy`":         cm.ErrServerBusy,
	"`cm.ErrServerLimit`":        cm.ErrServerLimit,
	"`cm.ErrTimeout`":            cm.ErrTimeout,
	"`cm.ErrVersion`":            cm.ErrVersion,
}

// A result is the error of a call after an end.
type result struct {
	call string
	err  error
	text []string // parts of the text: the operation and the object or address
}

// ends are the functions that bring about an end and return the errors of calls. A package that is not in the map of an
// end cannot have it.
type ends map[string]func(t *testing.T) []result

var packages = map[string]ends{
	"uverbs": uverbsEnds, "cm": cmEnds, "rdma": rdmaEnds, "rsocket": rsocketEnds, "devx": devxEnds,
}

// table returns the cells of the table in the document, by package and end.
func table(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "## What errors match\n")
	if !found {
		t.Fatal(document + " has no section What errors match")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var head []string
	cells := map[string]map[string]string{}
	for line := range strings.Lines(section) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "|---") {
			continue
		}
		row := strings.Split(strings.Trim(line, "|"), "|")
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		if head == nil {
			head = row
			continue
		}
		for i, cell := range row[1:] {
			name := head[i+1]
			if cells[name] == nil {
				cells[name] = map[string]string{}
			}
			cells[name][row[0]] = cell
		}
	}
	return cells
}

// TestEnds compares each cell of the table with what the calls return.
func TestEnds(t *testing.T) {
	cells := table(t)
	if got, want := slices.Sorted(maps.Keys(cells)), slices.Sorted(maps.Keys(packages)); !slices.Equal(got, want) {
		t.Fatalf("the table has the packages %v, the test %v", got, want)
	}
	for name, ends := range packages {
		for end := range ends {
			if _, ok := cells[name][end]; !ok {
				t.Errorf("%s: the table has no row %q", name, end)
			}
		}
		for end, cell := range cells[name] {
			cause, ok := ends[end]
			if ok != (cell != "-") {
				t.Errorf("%s, %s: the table has %q, and the test can bring it about: %v", name, end, cell, ok)
			}
			if ok && cell != "-" {
				t.Run(name+"/"+strings.ReplaceAll(end, " ", "_"), func(t *testing.T) { testEnd(t, cell, cause(t)) })
			}
		}
	}
}

func testEnd(t *testing.T, cell string, results []result) {
	want := map[string]bool{}
	for name := range strings.SplitSeq(cell, ", ") {
		if identities[name] == nil {
			t.Errorf("the test does not know %q", name)
		}
		want[name] = true
	}
	if len(results) == 0 {
		t.Error("no call was tested")
	}
	for _, r := range results {
		if r.err == nil {
			t.Errorf("%s returns no error", r.call)
			continue
		}
		for name, err := range identities {
			if got := errors.Is(r.err, err); got != want[name] {
				t.Errorf("%s: %v: matches %s: %v, want %v", r.call, r.err, name, got, want[name])
			}
		}
		for _, part := range r.text {
			if !strings.Contains(r.err.Error(), part) {
				t.Errorf("%s: the text has no %q: %v", r.call, part, r.err)
			}
		}
		isNetError(t, r, want["`os.ErrDeadlineExceeded`"])
	}
}

// isNetError checks that the errors of connections are net.Errors, and whether they are timeouts.
func isNetError(t *testing.T, r result, timeout bool) {
	t.Helper()
	var ofCM *cm.Error
	var ofRDMA *rdma.Error
	var op *net.OpError
	for _, found := range []struct {
		ok  bool
		err error
	}{{errors.As(r.err, &ofCM), ofCM}, {errors.As(r.err, &ofRDMA), ofRDMA}, {errors.As(r.err, &op), op}} {
		if !found.ok {
			continue
		}
		if n, ok := found.err.(net.Error); !ok || n.Timeout() != timeout {
			t.Errorf("%s: %T is a net.Error: %v; it is a timeout: %v, want %v", r.call, found.err, ok, !timeout, timeout)
		}
	}
	var n interface{ Timeout() bool }
	if got := errors.As(r.err, &n) && n.Timeout(); got != timeout {
		t.Errorf("%s: %v: a timeout: %v, want %v", r.call, r.err, got, timeout)
	}
}

// TestPublicAPI checks that this test uses the public API alone, as a program of another module does.
func TestPublicAPI(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, imp := range f.Imports {
			if strings.Contains(imp.Path.Value, "/internal/") || strings.Contains(imp.Path.Value, "/testbed") {
				t.Errorf("%s imports %s", name, imp.Path.Value)
			}
		}
	}
}
