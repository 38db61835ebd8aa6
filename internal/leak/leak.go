// Package leak tracks resources that must be released: kernel objects, rings,
// mappings and descriptors. Tests turn tracking on and report each resource that
// was not released, with the stack that allocated it. A program turns it on with
// GOVERBS_LEAKS=1 in the environment.
package leak

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Ticket represents one tracked resource. Track returns nil while tracking is
// off; the methods of a nil Ticket do nothing.
type Ticket struct {
	what  string
	stack [16]uintptr
	depth int
}

var tracker struct {
	on atomic.Bool // read without the lock, because it is false in most programs
	sync.Mutex
	live map[*Ticket]struct{}
}

func init() {
	if os.Getenv("GOVERBS_LEAKS") == "1" {
		Enable()
	}
}

// Enable turns tracking on. Resources allocated earlier are not tracked.
func Enable() {
	tracker.Lock()
	defer tracker.Unlock()
	if tracker.live == nil {
		tracker.live = make(map[*Ticket]struct{})
	}
	tracker.on.Store(true)
}

// Enabled reports whether tracking is on.
func Enabled() bool { return tracker.on.Load() }

// Track starts tracking a resource, described by kind and name, and records the
// caller's stack.
func Track(kind, name string) *Ticket {
	if !Enabled() {
		return nil
	}
	t := &Ticket{what: strings.TrimSpace(kind + " " + name)}
	t.depth = runtime.Callers(2, t.stack[:])
	tracker.Lock()
	defer tracker.Unlock()
	tracker.live[t] = struct{}{}
	return t
}

// Done stops tracking the resource, which has been released.
func (t *Ticket) Done() {
	if t == nil {
		return
	}
	tracker.Lock()
	defer tracker.Unlock()
	delete(tracker.live, t)
}

// String returns the resource and the stack that allocated it.
func (t *Ticket) String() string {
	if t == nil {
		return "(not tracked)"
	}
	var b strings.Builder
	b.WriteString(t.what + ", created at")
	frames := runtime.CallersFrames(t.stack[:t.depth])
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\n\t%s\n\t\t%s:%d", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}

// Live returns the resources that have not been released, sorted by description.
func Live() []*Ticket {
	tracker.Lock()
	defer tracker.Unlock()
	return slices.SortedFunc(maps.Keys(tracker.live), func(a, b *Ticket) int { return cmp.Compare(a.what, b.what) })
}
