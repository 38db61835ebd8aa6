package asyncwatch

import (
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
)

// A device returns its events, then an error.
type device struct {
	events []uverbs.AsyncEvent
	err    error
	last   func() // called when no event is left
}

func (d *device) Name() string { return "rxe0" }

func (d *device) NextEvent(context.Context) (uverbs.AsyncEvent, error) {
	if len(d.events) == 0 {
		if d.last != nil {
			d.last()
		}
		return uverbs.AsyncEvent{}, d.err
	}
	e := d.events[0]
	d.events = d.events[1:]
	return e, nil
}

func TestWatch(t *testing.T) {
	all := make([]uverbs.AsyncEvent, 22)
	for i := range all {
		all[i] = uverbs.AsyncEvent{Type: uverbs.EventType(i), Port: i % 3}
	}
	var out strings.Builder
	if err := watch(t.Context(), &device{events: all, err: uverbs.ErrDeviceGone}, &out); !errors.Is(err,
		uverbs.ErrDeviceGone) {
		t.Fatalf("error %v", err)
	}
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != 23 || lines[0] != "rxe0: async event FD -1" {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for at, want := range map[int]string{0: "unexpected (0), port 0", 9: "IBV_EVENT_PORT_ACTIVE (9), port 0",
		10: "IBV_EVENT_PORT_ERR (10), port 1", 18: "IBV_EVENT_GID_CHANGE (18), port 0", 16: "unexpected (16), port 1",
		20: "unexpected (20), port 2", 21: "unexpected (21), port 0"} {
		if lines[at+1] != "  event_type "+want {
			t.Errorf("event %d: %q, want %q", at, lines[at+1], want)
		}
	}
}

// TestWatchEnds checks that a signal ends watch without an error, and that a full disk is an error.
func TestWatchEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	if err := watch(ctx, &device{err: context.Canceled, last: cancel}, io.Discard); err != nil {
		t.Errorf("cancelled: %v", err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	if err := watch(t.Context(), &device{}, full); err == nil {
		t.Error("no error although nothing could be written")
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct{ args, device string }{{"", ""}, {"-d rxe0", "rxe0"}, {"--ib-dev=rxe0", "rxe0"},
		{"-d=rxe0", "rxe0"}} {
		if d, err := parse(strings.Fields(c.args), io.Discard); err != nil || d != c.device {
			t.Errorf("%q: %q, %v", c.args, d, err)
		}
	}
	for _, args := range []string{"-x", "rxe0", "-d"} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil || errors.Is(err, flag.ErrHelp) ||
			!strings.Contains(err.Error(), "--help") {
			t.Errorf("%q: %v", args, err)
		}
	}
	var out strings.Builder
	if _, err := parse([]string{"-h"}, &out); !errors.Is(err, flag.ErrHelp) || out.String() != usageText {
		t.Errorf("-h: %v, %q", err, out.String())
	}
}

func TestRunRefuses(t *testing.T) {
	if err := run(t.Context(), []string{"-d", "nodevice9"}, io.Discard); err == nil {
		t.Error("open succeeded for a device that does not exist")
	}
}

func TestEventFD(t *testing.T) {
	dir := t.TempDir()
	if got := eventFD(dir); got != "-1" {
		t.Errorf("no descriptor: %s", got)
	}
	for name, target := range map[string]string{"3": "/dev/infiniband/uverbs0", "5": "anon_inode:[infinibandevent]",
		"7": "anon_inode:[eventpoll]"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := eventFD(dir); got != "5" {
		t.Errorf("descriptor %s, want 5", got)
	}
	if got := eventFD(filepath.Join(dir, "none")); got != "-1" {
		t.Errorf("no directory: %s", got)
	}
}
