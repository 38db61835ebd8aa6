// Package testlog parses the output of a test binary with -test.v=test2json:
// the usual log, in which a byte 0x16 marks the lines of the testing package.
package testlog

import (
	"bytes"
	"strings"
	"sync"
)

// An Action is the kind of an event.
type Action string

// The actions.
const (
	Run    Action = "run"
	Output Action = "output"
	Pass   Action = "pass"   // of a test
	Fail   Action = "fail"   // of a test
	Skip   Action = "skip"   // of a test
	Passed Action = "passed" // of the binary
	Failed Action = "failed" // of the binary
	Lost   Action = "lost"   // not in a log: for users of Events
)

// Ends reports whether the test has ended.
func (a Action) Ends() bool { return a == Pass || a == Fail || a == Skip }

// An Event is a line of the log, or a part of one.
type Event struct {
	Action Action
	Test   string // "" if it does not belong to a test
	Text   string // of Output
}

const marker = 0x16

// A Writer parses a log and calls a function for each event.
type Writer struct {
	handle  func(Event)
	mu      sync.Mutex
	line    []byte
	current string
}

// NewWriter returns a Writer. handle is called by one goroutine at a time.
func NewWriter(handle func(Event)) *Writer { return &Writer{handle: handle} }

// maxLine bounds the length of a buffered line.
const maxLine = 1 << 16

// Write parses a piece of the log.
func (w *Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.line = append(w.line, p...)
	for {
		end := bytes.IndexByte(w.line, '\n')
		if end < 0 {
			if len(w.line) > maxLine {
				w.output(string(w.line))
				w.line = w.line[:0]
			}
			return len(p), nil
		}
		w.one(string(w.line[:end+1]))
		w.line = w.line[end+1:]
	}
}

// Close handles an incomplete last line.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.line) > 0 {
		w.one(string(w.line) + "\n")
		w.line = nil
	}
	return nil
}

// one handles a line. A test may have printed text without a newline before a
// line of the testing package.
func (w *Writer) one(line string) {
	if at := strings.LastIndexByte(line, marker); at >= 0 {
		if at > 0 {
			w.output(line[:at] + "\n")
		}
		if w.framing(strings.TrimSpace(line[at+1:])) {
			return
		}
		line = line[at+1:]
	}
	w.output(line)
}

func (w *Writer) output(text string) {
	w.handle(Event{Output, w.current, text})
}

// framing handles a line of the testing package. It reports whether it is one.
func (w *Writer) framing(line string) bool {
	word, rest, _ := strings.Cut(line, " ")
	switch word {
	case "===":
		verb, name, _ := strings.Cut(rest, " ")
		name = strings.TrimSpace(name)
		switch verb {
		case "RUN":
			w.current = name
			w.handle(Event{Run, name, ""})
			return true
		case "NAME", "CONT", "PAUSE":
			w.current = name
			return true
		}
	case "---":
		verb, rest, _ := strings.Cut(rest, ": ")
		name, _, _ := strings.Cut(rest, " (")
		action, ok := map[string]Action{"PASS": Pass, "FAIL": Fail, "SKIP": Skip}[verb]
		if ok {
			w.current = parent(name)
			w.handle(Event{action, name, ""})
		}
		return ok
	case "PASS":
		w.current = ""
		w.handle(Event{Passed, "", ""})
		return true
	case "FAIL":
		w.current = ""
		w.handle(Event{Failed, "", ""})
		return true
	}
	return false
}

func parent(name string) string {
	if i := strings.LastIndexByte(name, '/'); i > 0 {
		return name[:i]
	}
	return ""
}

// A Queue queues events for a reader that may be slower than the writer. The
// zero value is ready for use.
type Queue struct {
	mu     sync.Mutex
	more   *sync.Cond
	events []Event
}

func (q *Queue) locked() {
	q.mu.Lock()
	if q.more == nil {
		q.more = sync.NewCond(&q.mu)
	}
}

// Add appends an event.
func (q *Queue) Add(e Event) {
	q.locked()
	defer q.mu.Unlock()
	q.events = append(q.events, e)
	q.more.Signal()
}

// Next waits for an event and removes it.
func (q *Queue) Next() Event {
	q.locked()
	defer q.mu.Unlock()
	for len(q.events) == 0 {
		q.more.Wait()
	}
	e := q.events[0]
	q.events = q.events[1:]
	return e
}
