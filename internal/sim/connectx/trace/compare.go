package trace

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// Options select what is compared.
type Options struct {
	// Kinds are the kinds of events that are compared; all if empty.
	Kinds []string
	// Omit are events that are skipped: "kind.name" are those of a kind whose
	// field "name" has that value, such as "command.QUERY_QP".
	Omit []string
	// Ignore are fields that are skipped: "field" in every event, "kind.field"
	// in those of one kind, "kind.name.field" in those with a name as in Omit.
	Ignore []string
	// Context is how many events are shown before and after the start of the
	// difference; 3 if zero.
	Context int
}

// A Difference is the first difference between two traces.
type Difference struct {
	Line   [2]int      // line numbers in the traces, from 1; one past the end if a trace ended
	Fields []string    // fields that differ; none if the kinds differ, or a trace ended
	Before []string    // the last events before the difference
	Events [2][]string // events from the difference on; none if the trace ended
}

// String returns the difference in the style of diff -u.
func (d *Difference) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "line %d of the first trace and line %d of the second differ", d.Line[0], d.Line[1])
	if len(d.Fields) > 0 {
		fmt.Fprintf(&b, " in %s", strings.Join(d.Fields, ", "))
	}
	b.WriteByte('\n')
	for _, e := range d.Before {
		fmt.Fprintf(&b, "  %s\n", e)
	}
	for i, sign := range []string{"-", "+"} {
		for _, e := range d.Events[i] {
			fmt.Fprintf(&b, "%s %s\n", sign, e)
		}
		if len(d.Events[i]) == 0 {
			fmt.Fprintf(&b, "%s (the end)\n", sign)
		}
	}
	return b.String()
}

// Compare returns the first difference between two traces, or nil. Names are
// renumbered over the events that are compared, so that skipped events leave no
// gaps. It returns an error of a reader, or for a malformed line.
func Compare(a, b io.Reader, o Options) (*Difference, error) {
	if o.Context <= 0 {
		o.Context = 3
	}
	readers := [2]*reader{newReader("first", a, &o), newReader("second", b, &o)}
	var before []string
	for {
		first, err := readers[0].next()
		if err != nil {
			return nil, err
		}
		second, err := readers[1].next()
		if err != nil {
			return nil, err
		}
		if first == nil && second == nil {
			return nil, nil
		}
		if first == nil || second == nil || first.text != second.text {
			return difference(readers, [2]*event{first, second}, before, o.Context)
		}
		if len(before) == o.Context {
			before = append(before[:0], before[1:]...)
		}
		before = append(before, first.text)
	}
}

func difference(readers [2]*reader, at [2]*event, before []string, context int) (*Difference, error) {
	d := &Difference{Before: before}
	if at[0] != nil && at[1] != nil && at[0].kind == at[1].kind {
		d.Fields = differing(at[0], at[1])
	}
	for i, e := range at {
		d.Line[i] = readers[i].line
		if e == nil {
			d.Line[i]++
		}
		for n := 0; e != nil && n < context; n++ {
			d.Events[i] = append(d.Events[i], e.text)
			var err error
			if e, err = readers[i].next(); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// differing returns the fields that differ.
func differing(a, b *event) (names []string) {
	for _, x := range a.fields {
		if !slices.Contains(b.fields, x) {
			names = append(names, x.name)
		}
	}
	for _, x := range b.fields {
		if !slices.Contains(a.fields, x) && !slices.Contains(names, x.name) {
			names = append(names, x.name)
		}
	}
	if names == nil {
		return []string{"the order of fields"}
	}
	return names
}

// An event is a line of a trace, without skipped fields.
type event struct {
	kind   string
	name   string // of a command
	fields []field
	text   string
}

// field is a field with its value as JSON.
type field struct{ name, value string }

// A reader reads the events of a trace that are compared.
type reader struct {
	which   string
	options *Options
	lines   *bufio.Reader
	line    int
	renamed map[string]string
	last    map[string]int
}

func newReader(which string, r io.Reader, o *Options) *reader {
	return &reader{which: which, options: o, lines: bufio.NewReader(r), renamed: map[string]string{},
		last: map[string]int{}}
}

// next returns the next event, or nil at the end.
func (r *reader) next() (*event, error) {
	for {
		text, err := r.lines.ReadBytes('\n')
		if err != nil && (err != io.EOF || len(text) == 0) {
			if err == io.EOF {
				err = nil
			}
			return nil, err
		}
		r.line++
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		e, err := r.parse(text)
		if err != nil {
			return nil, fmt.Errorf("trace: line %d of the %s trace: %w", r.line, r.which, err)
		}
		if len(r.options.Kinds) > 0 && !slices.Contains(r.options.Kinds, e.kind) {
			continue
		}
		if !slices.Contains(r.options.Omit, e.kind+"."+e.name) {
			r.finish(e)
			return e, nil
		}
	}
}

// parse parses an event with its fields in order.
func (r *reader) parse(text []byte) (*event, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("not a JSON object: %.80q", text)
	}
	e := &event{}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		e.fields = append(e.fields, field{name.(string), string(value)})
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if len(e.fields) == 0 || e.fields[0].name != "event" || json.Unmarshal([]byte(e.fields[0].value), &e.kind) != nil {
		return nil, fmt.Errorf(`an event begins with its kind, "event", not as %.80q`, text)
	}
	for _, f := range e.fields {
		if f.name == "name" {
			e.name = strings.Trim(f.value, `"`)
		}
	}
	return e, nil
}

// finish drops skipped fields, renames values and sets the text.
func (r *reader) finish(e *event) {
	device := ""
	for _, f := range e.fields {
		if f.name == "device" {
			device = f.value
		}
	}
	e.fields = slices.DeleteFunc(e.fields, func(f field) bool {
		return f.name != "event" &&
			(slices.Contains(r.options.Ignore, f.name) || slices.Contains(r.options.Ignore, e.kind+"."+f.name) ||
				slices.Contains(r.options.Ignore, e.kind+"."+e.name+"."+f.name))
	})
	var b strings.Builder
	for i := range e.fields {
		f := &e.fields[i]
		f.value = r.rename(device, f.value)
		fmt.Fprintf(&b, "%c%q:%s", "{,"[min(i, 1)], f.name, f.value)
	}
	b.WriteByte('}')
	e.text = b.String()
}

// rename renumbers a name of a class, for each device separately.
func (r *reader) rename(device, value string) string {
	class, number, ok := strings.Cut(strings.Trim(value, `"`), "#")
	if n, err := strconv.Atoi(number); !ok || err != nil || n == 0 || strings.ContainsAny(class, ` \`) {
		return value
	}
	class = device + class
	if renamed, ok := r.renamed[device+value]; ok {
		return renamed
	}
	r.last[class]++
	renamed := fmt.Sprintf(`"%s#%d"`, strings.TrimPrefix(class, device), r.last[class])
	r.renamed[device+value] = renamed
	return renamed
}
