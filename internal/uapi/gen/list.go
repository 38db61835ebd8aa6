package main

import (
	"fmt"
	"strings"
)

// entry is one constant or struct of list.txt, with the indented lines below it.
type entry struct {
	header  string // the header that declares it
	kind    string // "const" or "struct"
	name    string
	flatten map[string]string // union field -> member whose fields replace it
	bytes   map[string]bool   // field -> a byte array
	types   map[string]string // field of an unnamed struct -> its Go name
	// variants lists members of unions that are byte arrays in the struct.
	variants []variant
}

type variant struct {
	path string // "wr.rdma"
	name string // Go name
}

// parseList reads list.txt.
func parseList(text string) ([]*entry, error) {
	var out []*entry
	var header string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		bad := fmt.Errorf("list line %d: cannot read %q", i+1, strings.TrimSpace(line))
		if strings.TrimLeft(line, " \t") != line {
			if len(out) == 0 || out[len(out)-1].kind != "struct" || !out[len(out)-1].detail(f) {
				return nil, bad
			}
			continue
		}
		switch {
		case f[0] == "header" && len(f) == 2:
			header = f[1]
		case f[0] == "const" && len(f) > 1:
			for _, n := range f[1:] {
				out = append(out, &entry{header: header, kind: "const", name: n})
			}
		case f[0] == "struct" && len(f) == 2:
			out = append(out, &entry{
				header: header, kind: "struct", name: f[1],
				flatten: map[string]string{}, bytes: map[string]bool{}, types: map[string]string{},
			})
		default:
			return nil, bad
		}
	}
	return out, nil
}

// detail parses one indented line below a struct and reports whether it is valid.
func (e *entry) detail(f []string) bool {
	switch {
	case f[0] == "bytes" && len(f) == 2:
		e.bytes[f[1]] = true
	case f[0] == "flatten" && len(f) == 3:
		e.flatten[f[1]] = f[2]
	case f[0] == "type" && len(f) == 3:
		e.types[f[1]] = f[2]
	case f[0] == "variant" && len(f) == 3:
		e.variants = append(e.variants, variant{path: f[1], name: f[2]})
	default:
		return false
	}
	return true
}

// camel turns a C name into a Go name: ib_uverbs_attr becomes IbUverbsAttr.
func camel(c string) string {
	var b strings.Builder
	for _, part := range strings.Split(c, "_") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}
