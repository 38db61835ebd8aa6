package ioctl

import "io"

// ArenaSize and MaxAttrs are the limits of a Cmd.
const (
	ArenaSize = arenaSize
	MaxAttrs  = maxAttrs
)

// Trace turns the trace on or off and sends it to w. Devices created until restore is called are
// traced.
func Trace(on bool, w io.Writer) (restore func()) {
	traceMu.Lock()
	defer traceMu.Unlock()
	wasOn, was := tracing, traceTo
	tracing, traceTo = on, w
	return func() {
		traceMu.Lock()
		defer traceMu.Unlock()
		tracing, traceTo = wasOn, was
	}
}

// SchemaEntry is one attribute in the table that the trace uses.
type SchemaEntry struct {
	Object, Method, Attr uint16
	Name                 string
	Class                uint8
}

// Classes of the schema.
const (
	ClassIn       = uint8(classIn)
	ClassOut      = uint8(classOut)
	ClassConst    = uint8(classConst)
	ClassHandle   = uint8(classHandle)
	ClassNew      = uint8(classNew)
	ClassFD       = uint8(classFD)
	ClassNewFD    = uint8(classNewFD)
	ClassWriteCmd = uint8(classWriteCmd)
)

// Schema lists the table.
func Schema() (all []SchemaEntry) {
	for key, m := range schema {
		for id, a := range m.attrs {
			all = append(all, SchemaEntry{key.object, key.method, id, m.name + " " + a.name, uint8(a.class)})
		}
	}
	return all
}
