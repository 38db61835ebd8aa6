// Package leak keeps account of what must be given back: kernel objects,
// descriptors, mappings and goroutines. Tests switch it on and report what is
// left with the stack that made it; a program does by GOVERBS_LEAKS=1.
package leak

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
)

// A Ticket stands for one thing that must be given back. The nil Ticket, which
// is what Track answers while the account is off, costs nothing.
type Ticket struct {
	what  string
	stack [16]uintptr
	depth int
}

var account struct {
	on atomic.Bool // read without the lock: most programs have no account
	sync.Mutex
	live map[*Ticket]struct{}
}

func init() {
	if os.Getenv("GOVERBS_LEAKS") == "1" {
		Enable()
	}
}

// Enable opens the account. What was made before is not in it.
func Enable() {
	account.Lock()
	defer account.Unlock()
	if account.live == nil {
		account.live = make(map[*Ticket]struct{})
	}
	account.on.Store(true)
}

// Enabled tells whether the account is open.
func Enabled() bool { return account.on.Load() }

// Track enters a thing, described by kind and name.
func Track(kind, name string) *Ticket {
	if !Enabled() {
		return nil
	}
	t := &Ticket{what: strings.TrimSpace(kind + " " + name)}
	t.depth = runtime.Callers(2, t.stack[:])
	account.Lock()
	defer account.Unlock()
	account.live[t] = struct{}{}
	return t
}

// Done strikes it out.
func (t *Ticket) Done() {
	if t == nil {
		return
	}
	account.Lock()
	defer account.Unlock()
	delete(account.live, t)
}

// String is the thing and the stack that made it.
func (t *Ticket) String() string {
	if t == nil {
		return "(not tracked)"
	}
	var b strings.Builder
	b.WriteString(t.what)
	b.WriteString(", made at")
	frames := runtime.CallersFrames(t.stack[:t.depth])
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "\n\t%s\n\t\t%s:%d", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}

// Live returns what is in the account, sorted by description.
func Live() []*Ticket {
	account.Lock()
	defer account.Unlock()
	all := make([]*Ticket, 0, len(account.live))
	for t := range account.live {
		all = append(all, t)
	}
	sort.Slice(all, func(i, j int) bool { return all[i].what < all[j].what })
	return all
}
