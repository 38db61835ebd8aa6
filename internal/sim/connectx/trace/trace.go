package trace

import (
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
)

// A Class is the kind of value of a field. Values of ClassKey and the following
// are written as names; a kind of object, such as "qp", is also a class.
type Class string

const (
	Plain     Class = ""     // a decimal number
	HexNumber Class = "0x"   // a number written in hexadecimal
	Boolean   Class = "bool" // 0 is false
	String    Class = "text"
	Octets    Class = "bytes"

	ClassKey     Class = "key"  // a memory key, lkey or rkey
	ClassAddress Class = "addr" // an address of host or remote memory
)

// A Field is one value of an event. The functions below return fields.
type Field struct {
	Name  string
	Class Class
	Value uint64
	Text  string // of String
	Bytes []byte // of Octets
}

// Num returns a decimal number.
func Num[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~int](name string, v T) Field {
	return Field{Name: name, Value: uint64(v)}
}

// Hex returns a number written in hexadecimal.
func Hex[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint](name string, v T) Field {
	return Field{Name: name, Class: HexNumber, Value: uint64(v)}
}

// Bool returns a boolean.
func Bool(name string, v bool) Field {
	f := Field{Name: name, Class: Boolean}
	if v {
		f.Value = 1
	}
	return f
}

// Text returns a string, such as the name of an opcode.
func Text(name, v string) Field { return Field{Name: name, Class: String, Text: v} }

// Bytes returns bytes. They are read before Emit returns.
func Bytes(name string, b []byte) Field { return Field{Name: name, Class: Octets, Bytes: b} }

// Key returns a memory key of 32 bits.
func Key(name string, key uint32) Field {
	return Field{Name: name, Class: ClassKey, Value: uint64(key)}
}

// Address returns an address of host or remote memory.
func Address(name string, addr uint64) Field {
	return Field{Name: name, Class: ClassAddress, Value: addr}
}

// Object returns the number of an object of a kind: "qp", "cq", "srq", "pd",
// "uar".
func Object(name string, kind Class, number uint32) Field {
	return Field{Name: name, Class: kind, Value: uint64(number)}
}

// maxNames bounds the names of one class, because a guest chooses some values,
// such as addresses. Later values are named "#more".
const maxNames = 1 << 20

// names are the names of one class.
type names struct {
	given map[uint64]int
	last  int
}

// output is shared by the tracers of a world.
type output struct {
	w    io.Writer
	line []byte
	err  error
}

// A Tracer writes events. It has no lock; a loop serializes its users.
type Tracer struct {
	out    *output
	device string
	names  map[Class]*names
}

// New returns a tracer that writes each event with one Write.
func New(w io.Writer) *Tracer {
	return &Tracer{out: &output{w: w}, names: make(map[Class]*names)}
}

// Device returns a tracer for one of several devices that write to the same
// trace: its events have the field "device", and its names are separate.
func (t *Tracer) Device(name string) *Tracer {
	if t == nil {
		return nil
	}
	return &Tracer{out: t.out, device: name, names: make(map[Class]*names)}
}

// On reports whether events are written, for callers whose fields are
// expensive.
func (t *Tracer) On() bool { return t != nil }

// Emit writes an event: its kind, and its fields in order.
func (t *Tracer) Emit(kind string, fields ...Field) {
	if t != nil {
		t.emit(kind, fields)
	}
}

// Err returns the first error of the writer. Nothing is written after it.
func (t *Tracer) Err() error {
	if t == nil {
		return nil
	}
	return t.out.err
}

// Forget must be called when an object or a key is destroyed: if its number is
// reused, it gets a new name.
func (t *Tracer) Forget(class Class, value uint64) {
	if t == nil {
		return
	}
	if n := t.names[class]; n != nil {
		delete(n.given, value)
	}
}

// Reset removes all names, as when the device is reset or its driver is
// rebound.
func (t *Tracer) Reset() {
	if t != nil {
		clear(t.names)
	}
}

func (t *Tracer) emit(kind string, fields []Field) {
	o := t.out
	if o.err != nil {
		return
	}
	b := append(o.line[:0], `{"event":`...)
	b = appendText(b, kind)
	if t.device != "" {
		b = appendText(append(b, `,"device":`...), t.device)
	}
	for i := range fields {
		b = append(b, ',')
		b = appendText(b, fields[i].Name)
		b = append(b, ':')
		b = t.appendValue(b, &fields[i])
	}
	b = append(b, '}', '\n')
	o.line = b
	if _, err := o.w.Write(b); err != nil {
		o.err = fmt.Errorf("trace: %w", err)
	}
}

func (t *Tracer) appendValue(b []byte, f *Field) []byte {
	switch f.Class {
	case Plain:
		return strconv.AppendUint(b, f.Value, 10)
	case HexNumber:
		b = append(b, `"0x`...)
		return append(strconv.AppendUint(b, f.Value, 16), '"')
	case Boolean:
		return strconv.AppendBool(b, f.Value != 0)
	case String:
		return appendText(b, f.Text)
	case Octets:
		return append(hex.AppendEncode(append(b, '"'), f.Bytes), '"')
	}
	return t.appendName(b, f.Class, f.Value)
}

// appendName appends a value's name. Zero is not renamed: it mostly means no
// object, and is the same in all traces.
func (t *Tracer) appendName(b []byte, class Class, value uint64) []byte {
	b = append(append(append(b, '"'), class...), '#')
	if value == 0 {
		return append(b, '0', '"')
	}
	n := t.names[class]
	if n == nil {
		n = &names{given: make(map[uint64]int)}
		t.names[class] = n
	}
	i, ok := n.given[value]
	if !ok && len(n.given) >= maxNames {
		return append(b, `more"`...)
	}
	if !ok {
		n.last++
		i = n.last
		n.given[value] = i
	}
	return append(strconv.AppendInt(b, int64(i), 10), '"')
}

// appendText appends a string as JSON. Bytes other than printable ASCII are
// escaped by number.
func appendText(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ' || c > '~':
			b = append(b, `\u00`...)
			b = append(b, digits[c>>4], digits[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
