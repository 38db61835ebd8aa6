package rdma

import (
	"fmt"

	"github.com/goverbs/goverbs/internal/machine"
)

// A misuseReporter is a machine in memory that reports misuse of buffers.
type misuseReporter interface{ Misused(text string) }

// misused reports, in a test, that the program calls a method of a buffer that it does not own any
// more.
func (b Buffer) misused(method string) {
	if b.m != nil {
		misused(method + " of a buffer that was released or sent before,")
	}
}

func misused(text string) {
	if r, ok := machine.Current().(misuseReporter); ok {
		r.Misused(text)
	}
}

// watch has a test report the connection if it is not closed.
func (c *Conn) watch() {
	if w, ok := machine.Current().(watcher); ok {
		c.watcher = w
		c.closed = w.Watch("not-closed", "the connection to "+c.peer.String()+", created")
	}
}

// takeMessage is take for the memory of a message. It has a test report a message that is not released.
func (c *Conn) takeMessage(m *memory, n int) Buffer {
	if c.watcher != nil {
		m.watch(c.watcher, fmt.Sprintf("a message from %v, received", c.peer))
	}
	return m.take(n)
}

// takeBuffer is take for a buffer of the program. It has a test report one that is neither sent nor released.
func (c *Conn) takeBuffer(m *memory, n int) Buffer {
	if c.watcher != nil {
		m.watch(c.watcher, fmt.Sprintf("a buffer of %d bytes, allocated", n))
	}
	return m.take(n)
}

// takeSlice is take for a slice of a buffer. It has a test report one that is neither sent nor released.
func (m *memory) takeSlice(n int) Buffer {
	if w, ok := machine.Current().(watcher); ok {
		m.watch(w, fmt.Sprintf("a slice of %d bytes, created", n))
	}
	return m.take(n)
}

// watch has a test report memory that the program, which is about to own it, does not release.
func (m *memory) watch(w watcher, what string) {
	released := w.Watch("not-released", what)
	m.released.Store(&released)
}
