package verbstest

import (
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/internal/sim/connectx/engine"
)

// A Rule is a rule for programs. A program that breaks it fails the test, unless the test allows it:
// see [Network.Allow].
type Rule string

// The rules that programs break.
const (
	// A message finds no receive in its QP or SRQ and is lost: at once on UC and UD, on RC if the peer has no
	// retries left, or if the QP is closed while the message waits. Datagrams to multicast groups do not count.
	ReceiveLate Rule = "receive-late"
	// A message is longer than its receive. On UD, the first 40 bytes are the network header.
	ReceiveLength Rule = "receive-length"
	// A message replaces bytes of another one whose completion was not polled: two receives share memory.
	ReceiveOverlap Rule = "receive-overlap"
	// A request or receive has a local key that names no region, such as the key of a closed one.
	LocalKey Rule = "key"
	// The bounds, the rights or the PD of a local key do not fit.
	LocalAccess Rule = "local-access"
	// A peer's request has a wrong remote key, bounds, PD or alignment, or the region or the QP does
	// not permit it.
	RemoteAccess Rule = "remote-access"
	// A request fails for another reason than its memory: it is too long, or it binds or invalidates
	// a window wrongly.
	BadRequest Rule = "request"
	// The local memory of an atomic is not one SGE of eight bytes.
	AtomicSize Rule = "atomic"
	// A packet is for a QP that has never existed, or that was never connected, or a request of a DCI is
	// for a QP that is not a DCT.
	Destination Rule = "destination"
	// A datagram has another Q_Key than the QP that it is for, or a request of a DCI another access key
	// than the DCT.
	QKey Rule = "qkey"
	// The attributes of the two ends of a connection do not fit: the PSNs or the path MTUs differ, or more READs and
	// atomics may be outstanding than the peer permits.
	Connection Rule = "connection"
	// More requests are posted than the completion queue has entries. Unsignaled requests count,
	// since they complete if their QP fails. Receives of an SRQ do not count.
	CQCapacity Rule = "cq-capacity"
	// A completion has no room in its completion queue.
	CQOverrun Rule = "cq-overrun"
	// A send queue is full, and none of its requests is signaled: nothing can free it.
	Unsignaled Rule = "unsignaled"
	// A CQ was armed (uverbs.CQ.Arm) when it had completions, and was not polled then. They raise no event: poll
	// between Arm and WaitEvent. A ConnectX raises one, other devices do not.
	LostWakeup Rule = "lost-wakeup"
	// A goroutine that the program has started on a machine runs after the test's cleanup.
	GoroutineLeft Rule = "goroutine-left"
	// A buffer of package rdma is used after it was released or sent.
	BufferUse Rule = "buffer-use"
	// A connection of package rdma is not closed when the test ends.
	NotClosed Rule = "not-closed"
	// A message of package rdma is not released when the test ends, or a buffer is neither released nor sent.
	NotReleased Rule = "not-released"
)

// Allow permits programs on the network to break rules, for tests that break them on purpose. It
// may be called at any time.
func (n *Network) Allow(rules ...Rule) {
	n.t.Helper()
	for _, r := range rules {
		known := slices.Concat(engine.Rules, engine.ProgramRules)
		if !slices.Contains(ofPackages, r) && !slices.Contains(known, engine.Rule(r)) {
			n.t.Fatalf("verbstest: Allow: there is no rule %q: use the constants of type verbstest.Rule", r)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.allowed == nil {
		n.allowed = map[Rule]bool{}
	}
	for _, r := range rules {
		n.allowed[r] = true
	}
}

// Allow is [Network.Allow] of the machine's network.
func (m *Machine) Allow(rules ...Rule) {
	m.net.t.Helper()
	m.net.Allow(rules...)
}

// violation reports that a program broke a rule. The same text is reported once: a peer tries again.
func (n *Network) violation(m *Machine, v engine.Violation) {
	if v.Rule == engine.RuleLostWakeup && calledBy(v.Origin, waits) {
		return
	}
	text := v.Text
	for i, p := range v.Places {
		text += []string{": ", ", "}[min(i, 1)] + p.What
		if line := site(p.Origin); line != "" {
			text += " at " + line
		}
	}
	if posted := site(v.Origin); posted != "" {
		what := "posted"
		if v.Rule == engine.RuleLostWakeup {
			what = "armed"
		}
		text = what + " at " + posted + ": " + text
	}
	if !slices.Contains(ofPrograms, Rule(v.Rule)) {
		text = fmt.Sprintf("QP %#x, CQ %#x, request %#x: %s", v.QPN, v.CQN, v.Index, text)
	}
	if v.Closing {
		n.foundClosing(m, Rule(v.Rule), text, 1)
	} else {
		n.broken(m, Rule(v.Rule), text)
	}
}

// ofPrograms has the rules whose texts name the queue.
var ofPrograms = []Rule{ReceiveLate, ReceiveLength, ReceiveOverlap, LocalKey, LocalAccess, RemoteAccess, BadRequest,
	AtomicSize, Destination, QKey, Connection, CQCapacity, CQOverrun, LostWakeup, Unsignaled}

// ofPackages has the rules that are not the device's.
var ofPackages = []Rule{GoroutineLeft, BufferUse, NotClosed, NotReleased}

// broken reports a broken rule once, unless it is allowed.
func (n *Network) broken(m *Machine, r Rule, text string) {
	line := fmt.Sprintf("%s: %s: %s", m.name, r, text)
	n.mu.Lock()
	skip := n.allowed[r] || n.reported[line] || m.killed.Load() || m.foreign.Load()
	if n.reported == nil {
		n.reported = map[string]bool{}
	}
	n.reported[line] = true
	n.mu.Unlock()
	if !skip {
		n.report("%s", line)
	}
}

const module = "github.com/goverbs/goverbs/"

// site returns the file and line of the first caller outside of the library, or an empty string.
func site(stack []uintptr) string {
	if len(stack) == 0 {
		return ""
	}
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		if f.Function != "" && !ofLibrary(f.Function, f.File) && !slices.Contains(starters, f.Function) {
			return fmt.Sprintf("%s:%d", filepath.Base(f.File), f.Line)
		}
		if !more {
			return ""
		}
	}
}

// waits arms a CQ on behalf of CQ.Wait, which then looks at the queue before it waits.
const waits = module + "uverbs.(*CQ).checkReady"

// calledBy reports whether a function is on a call stack.
func calledBy(stack []uintptr, function string) bool {
	for frames, more := runtime.CallersFrames(stack), len(stack) > 0; more; {
		var f runtime.Frame
		if f, more = frames.Next(); f.Function == function {
			return true
		}
	}
	return false
}

// ofLibrary reports whether a function belongs to the library or the runtime, except its tests.
func ofLibrary(function, file string) bool {
	if strings.HasPrefix(function, "runtime.") || strings.HasPrefix(function, "internal/poll.") ||
		strings.HasPrefix(function, "os.") {
		return true // the library calls package os, which calls it for the commands of rdma_cm
	}
	name, ours := strings.CutPrefix(function, module)
	if !ours || strings.HasSuffix(file, "_test.go") || strings.HasPrefix(name, "internal/sim/providertest") {
		return false
	}
	for _, pkg := range []string{"rdma.", "rsocket.", "uverbs.", "cm.", "mmio.", "verbstest.", "provider/", "internal/"} {
		if strings.HasPrefix(name, pkg) {
			return true
		}
	}
	return false
}

// Received implements ioctl.Posts.
func (f *file) Received(record uint64) { f.ReceivesPosted(record) }

// Full implements ioctl.Posts.
func (f *file) Full(qpn uint32) { f.SendQueueFull(qpn) }

// caller returns the line of the program that the calling goroutine runs.
func caller() string {
	var stack [32]uintptr
	return site(stack[:runtime.Callers(2, stack[:])])
}

// Watch implements what package rdma looks for in a machine: what the program has not released or closed when the test
// ends breaks the rule, and is reported with the line that this is called from.
func (h *host) Watch(rule, what string) (done func()) {
	m := h.m
	line := caller()
	if line != "" {
		what += " at " + line
	}
	k := kept{Rule(rule), what, line}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[k]++
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.kept[k]--; m.kept[k] == 0 {
			delete(m.kept, k)
		}
	}
}

// kept is what a program has to release or close.
type kept struct {
	rule Rule
	text string
	line string // of the program, or empty
}

// checkKept reports what the program has not released or closed, and returns the lines that it has named.
func (m *Machine) checkKept() (lines []string) {
	m.mu.Lock()
	all := maps.Clone(m.kept)
	m.mu.Unlock()
	order := func(a, b kept) int { return strings.Compare(a.text, b.text) }
	for _, k := range slices.SortedFunc(maps.Keys(all), order) {
		lines = append(lines, k.line)
		text := k.text
		if n := all[k]; n > 1 {
			text += fmt.Sprintf(" (%d of them)", n)
		}
		m.net.foundClosing(m, k.rule, text, all[k])
	}
	return lines
}

// Misused implements what package rdma looks for in a machine: it reports misuse of a buffer.
func (h *host) Misused(text string) { h.m.net.broken(h.m, BufferUse, text+" at "+caller()) }
