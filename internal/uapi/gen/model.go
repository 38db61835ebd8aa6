package main

import (
	"fmt"
	"strings"

	"modernc.org/cc/v4"
)

// model holds the declarations of the generated files, in the order of list.txt.
type model struct {
	items []item
}

// item is one struct, or consecutive constants of one enum.
type item struct {
	header string
	group  string
	consts []constant
	st     *goStruct
}

type constant struct {
	name string
	num  number
}

// goStruct is a Go struct and the C object that it mirrors.
type goStruct struct {
	name   string // Go name
	cname  string // C struct
	base   string // path of the mirrored member; "" for the whole struct
	size   int64
	fields []goField
}

type goField struct {
	name string // Go name; "_" is padding
	path string // C path below the base
	typ  string
	be   bool // big-endian
	off  int64
	size int64
}

type builder struct {
	c     *headers
	names map[string]string // C struct -> Go name
	extra []*goStruct       // structs that have no tag in C
}

// buildModel converts the entries of list.txt to Go declarations.
func buildModel(c *headers, entries []*entry) (*model, error) {
	b := &builder{c: c, names: map[string]string{}}
	for _, e := range entries {
		if e.kind == "struct" {
			b.names[e.name] = camel(e.name)
		}
	}
	m := &model{}
	lastSeq := -1
	for _, e := range entries {
		if e.kind == "const" {
			num, ok := c.consts[e.name]
			if !ok {
				return nil, fmt.Errorf("%s: no constant %s", e.header, e.name)
			}
			if n := len(m.items); n == 0 || m.items[n-1].st != nil || m.items[n-1].header != e.header || num.seq != lastSeq {
				m.items = append(m.items, item{header: e.header, group: num.group})
			}
			lastSeq = num.seq
			it := &m.items[len(m.items)-1]
			it.consts = append(it.consts, constant{e.name, num})
			continue
		}
		sts, err := b.structOf(e)
		if err != nil {
			return nil, fmt.Errorf("%s: struct %s: %w", e.header, e.name, err)
		}
		for _, st := range sts {
			m.items = append(m.items, item{header: e.header, st: st})
		}
	}
	return m, nil
}

// structOf returns the Go structs of one entry: the struct itself, its unnamed
// inner structs and its variants.
func (b *builder) structOf(e *entry) ([]*goStruct, error) {
	t := b.c.structs[e.name]
	if t == nil {
		return nil, fmt.Errorf("not in the headers")
	}
	b.extra = nil
	st, err := b.mirror(b.names[e.name], "", t, e)
	if err != nil {
		return nil, err
	}
	for _, v := range e.variants {
		vs, err := b.variant(e, t, v)
		if err != nil {
			return nil, err
		}
		b.extra = append(b.extra, vs)
	}
	return append([]*goStruct{st}, b.extra...), nil
}

// variant returns the struct of one union member.
func (b *builder) variant(e *entry, t *cc.StructType, v variant) (*goStruct, error) {
	var cur cc.Type = t
	for _, name := range strings.Split(v.path, ".") {
		f := member(cur, name)
		if f == nil {
			return nil, fmt.Errorf("no member %s", v.path)
		}
		cur = f.Type()
	}
	inner, ok := cur.(*cc.StructType)
	if !ok {
		return nil, fmt.Errorf("member %s is not a struct", v.path)
	}
	return b.mirror(v.name, v.path, inner, e)
}

// mirror returns the Go struct for the member base of e, whose type is t.
func (b *builder) mirror(name, base string, t cc.Type, e *entry) (*goStruct, error) {
	st := &goStruct{name: name, cname: e.name, base: base, size: t.Size()}
	if err := b.fields(st, t, e, "", 0); err != nil {
		return nil, err
	}
	st.pad()
	return st, nil
}

// fields appends the Go form of t's fields, which start at offset off.
func (b *builder) fields(st *goStruct, t cc.Type, e *entry, prefix string, off int64) error {
	for i := 0; ; i++ {
		f := fieldAt(t, i)
		if f == nil {
			return nil
		}
		if f.IsFlexibleArrayMember() || empty(f.Type()) {
			continue // a flexible array member: its bytes follow the struct
		}
		if f.Type().IsIncomplete() || f.Type().Size() <= 0 {
			return fmt.Errorf("field %s has an unknown type: add a stand-in for its header", f.Name())
		}
		if f.IsBitfield() {
			return fmt.Errorf("field %s is a bit field", f.Name())
		}
		if err := b.field(st, f, e, prefix, off+f.Offset()); err != nil {
			return err
		}
	}
}

func (b *builder) field(st *goStruct, f *cc.Field, e *entry, prefix string, off int64) error {
	name := f.Name()
	if pick, ok := e.flatten[name]; ok {
		inner := member(f.Type(), pick)
		if inner == nil {
			return fmt.Errorf("no member %s.%s", name, pick)
		}
		return b.fields(st, inner.Type(), e, prefix+name+"."+pick+".", off)
	}
	g := goField{path: prefix + name, off: off, size: f.Type().Size()}
	var err error
	switch {
	case e.bytes[name]:
		g.typ = fmt.Sprintf("[%d]byte", g.size)
	case e.types[name] != "":
		g.typ = e.types[name]
		in, err := b.mirror(g.typ, g.path, f.Type(), e)
		if err != nil {
			return err
		}
		b.extra = append(b.extra, in)
	default:
		if u, ok := f.Type().(*cc.UnionType); ok {
			name, g.typ, err = b.union(u, name)
			g.path = prefix + name
		} else {
			g.typ, g.be, err = b.goType(f.Type())
		}
	}
	if err != nil {
		return fmt.Errorf("field %s: %w", name, err)
	}
	g.name = camel(name)
	st.fields = append(st.fields, g)
	return nil
}

// union returns the name and the Go type of a field that is a union. An unnamed
// union has those of its first member. A union of scalars of one size is an
// unsigned integer. Any other union is a byte array.
func (b *builder) union(u *cc.UnionType, name string) (string, string, error) {
	scalar := true
	for i := 0; ; i++ {
		f := fieldAt(u, i)
		if f == nil {
			break
		}
		_, ok := f.Type().(*cc.PredefinedType)
		scalar = scalar && ok && f.Type().Size() == u.Size()
	}
	first := fieldAt(u, 0)
	if name == "" {
		t, _, err := b.goType(first.Type())
		return first.Name(), t, err
	}
	if scalar {
		return name, fmt.Sprintf("uint%d", u.Size()*8), nil
	}
	return name, fmt.Sprintf("[%d]byte", u.Size()), nil
}

// goType returns the Go type of a C type and whether it is big-endian.
func (b *builder) goType(t cc.Type) (string, bool, error) {
	switch x := t.(type) {
	case *cc.PredefinedType:
		be := strings.HasPrefix(t.Typedef().Name(), "__be")
		if cc.IsSignedInteger(t) {
			return fmt.Sprintf("int%d", t.Size()*8), be, nil
		}
		return fmt.Sprintf("uint%d", t.Size()*8), be, nil
	case *cc.ArrayType:
		elem, be, err := b.goType(x.Elem())
		if elem == "uint8" {
			elem = "byte"
		}
		return fmt.Sprintf("[%d]%s", x.Len(), elem), be, err
	case *cc.StructType:
		tag := x.Tag()
		if n := b.names[tag.SrcStr()]; n != "" {
			return n, false, nil
		}
		return "", false, fmt.Errorf("struct %q is not in the list", tag.SrcStr())
	}
	return "", false, fmt.Errorf("no Go form for %v", t)
}

// pad adds explicit fields for the padding that the C compiler inserts.
func (st *goStruct) pad() {
	var out []goField
	var end int64
	hole := func(to int64) {
		if to > end {
			out = append(out, goField{name: "_", typ: fmt.Sprintf("[%d]byte", to-end), off: end, size: to - end})
		}
	}
	for _, f := range st.fields {
		hole(f.off)
		out = append(out, f)
		end = f.off + f.size
	}
	hole(st.size)
	st.fields = out
}

// empty reports whether the type has size 0: an array without elements, or a
// struct or union of such arrays.
func empty(t cc.Type) bool {
	switch x := t.(type) {
	case *cc.ArrayType:
		return x.Len() <= 0
	case *cc.StructType, *cc.UnionType:
		for i := 0; ; i++ {
			f := fieldAt(t, i)
			if f == nil {
				return i > 0
			}
			if !f.IsFlexibleArrayMember() && !empty(f.Type()) {
				return false
			}
		}
	}
	return false
}

// aggregate is a *cc.StructType or a *cc.UnionType.
type aggregate interface {
	FieldByIndex(i int) *cc.Field
	FieldByName(name string) *cc.Field
}

func fieldAt(t cc.Type, i int) *cc.Field {
	if a, ok := t.(aggregate); ok {
		return a.FieldByIndex(i)
	}
	return nil
}

func member(t cc.Type, name string) *cc.Field {
	if a, ok := t.(aggregate); ok {
		return a.FieldByName(name)
	}
	return nil
}
