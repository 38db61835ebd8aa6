package rdma

import "github.com/goverbs/goverbs/internal/machine"

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

// A connWatcher is a machine in memory that reports connections that are not closed.
type connWatcher interface {
	Opened(what string) (closed func())
}

// watch has a test report the connection, with the line of the caller's program, if it is not closed.
func (c *Conn) watch() {
	if w, ok := machine.Current().(connWatcher); ok {
		c.closed = w.Opened("the connection to " + c.peer.String())
	}
}
