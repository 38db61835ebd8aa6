package prm

// A Field is a sequence of bits in a layout.
type Field struct {
	Name   string
	Offset int // in bits from the start of the layout, the most significant bit first
	Width  int // in bits
}

// Get returns the field's value in b, which has the layout. The field must be
// at most 64 bits wide and lie in eight bytes; see Bytes for others.
func (f Field) Get(b []byte) uint64 {
	first, end := f.Offset/8, f.Offset+f.Width
	last := (end - 1) / 8
	var v uint64
	for _, x := range b[first : last+1] {
		v = v<<8 | uint64(x)
	}
	return v >> (last*8 + 8 - end) & f.mask()
}

// Set stores the low bits of v as the field's value in b.
func (f Field) Set(b []byte, v uint64) {
	first, end := f.Offset/8, f.Offset+f.Width
	last := (end - 1) / 8
	shift := last*8 + 8 - end
	mask := f.mask() << shift
	v = v << shift & mask
	for i := last; i >= first; i-- {
		b[i] = b[i]&^byte(mask) | byte(v)
		v >>= 8
		mask >>= 8
	}
}

// Is reports whether the field is not zero.
func (f Field) Is(b []byte) bool { return f.Get(b) != 0 }

// SetBool stores 1 for true and 0 for false.
func (f Field) SetBool(b []byte, v bool) {
	if v {
		f.Set(b, 1)
	} else {
		f.Set(b, 0)
	}
}

// Bytes returns the bytes of the field: an address, a name or a nested layout.
// The field must begin and end on byte boundaries.
func (f Field) Bytes(b []byte) []byte {
	return b[f.Offset/8 : (f.Offset+f.Width)/8 : (f.Offset+f.Width)/8]
}

// At returns the i-th element of an array of which f is the first element.
func (f Field) At(i int) Field {
	f.Offset += i * f.Width
	return f
}

// Within returns the field as a field of an outer layout that has f's layout at
// outer.
func (f Field) Within(outer Field) Field {
	f.Name, f.Offset = outer.Name+"."+f.Name, f.Offset+outer.Offset
	return f
}

// Rest returns b from the field on: an array without a fixed end.
func (f Field) Rest(b []byte) []byte { return b[f.Offset/8:] }

func (f Field) mask() uint64 { return ^uint64(0) >> (64 - f.Width) }

// A Layout is a structure in memory shared by driver and device.
type Layout struct {
	Name   string
	Size   int // in bytes, without an array at the end
	fields []entry
}

type entry struct {
	Field
	within *Layout // layout of the field's bytes
	alias  bool    // an earlier field has the same bits
}

// layouts are all layouts.
var layouts []*Layout

func layout(name string, size int) *Layout {
	l := &Layout{Name: name, Size: size}
	layouts = append(layouts, l)
	return l
}

// field adds a field to the layout, at a byte offset and a bit offset from
// there.
func (l *Layout) field(name string, offset, bit, width int) Field {
	f := Field{name, offset*8 + bit, width}
	l.fields = append(l.fields, entry{Field: f})
	return f
}

// nest adds a nested layout.
func (l *Layout) nest(name string, offset int, within *Layout) Field {
	f := Field{name, offset * 8, within.Size * 8}
	l.fields = append(l.fields, entry{Field: f, within: within})
	return f
}

// array adds n consecutive fields of the same width and returns the first.
func (l *Layout) array(name string, offset, width, n int) Field {
	l.field(name, offset, 0, width*n)
	return Field{name, offset * 8, width}
}

// tail adds an array after the layout's size and returns its first element.
func (l *Layout) tail(name string, offset, width int) Field {
	return Field{name, offset * 8, width}
}

// alias adds another name or meaning of bits that already have one.
func (l *Layout) alias(name string, offset, bit, width int) Field {
	f := Field{name, offset*8 + bit, width}
	l.fields = append(l.fields, entry{Field: f, alias: true})
	return f
}

// Fields yields every field with its offset in the layout; those of nested
// layouts with their path ("qpc.state").
func (l *Layout) Fields(yield func(f Field) bool) { l.walk("", 0, yield) }

func (l *Layout) walk(prefix string, base int, yield func(Field) bool) bool {
	for _, e := range l.fields {
		f := e.Field
		f.Name, f.Offset = prefix+f.Name, f.Offset+base
		if e.within != nil {
			if !e.within.walk(f.Name+".", f.Offset, yield) {
				return false
			}
		} else if !yield(f) {
			return false
		}
	}
	return true
}
