package prm

import "testing"

// TestLayouts checks that every field lies within its layout, overlaps others
// only if it is an alias, and can be read.
func TestLayouts(t *testing.T) {
	for _, l := range layouts {
		owner := make([]string, l.Size*8)
		for _, e := range l.fields {
			if e.Width <= 0 || e.Offset < 0 || e.Offset+e.Width > len(owner) {
				t.Errorf("%s.%s: bits %d to %d of %d", l.Name, e.Name, e.Offset, e.Offset+e.Width, len(owner))
				continue
			}
			bytes := e.Offset%8 == 0 && e.Width%8 == 0
			if !bytes && e.Offset%8+e.Width > 64 {
				t.Errorf("%s.%s: %d bits at bit %d can be read neither as a number nor as bytes", l.Name, e.Name, e.Width, e.Offset)
			}
			if e.alias {
				continue
			}
			for bit := e.Offset; bit < e.Offset+e.Width; bit++ {
				if owner[bit] != "" {
					t.Errorf("%s.%s: bit %d is of %s, too", l.Name, e.Name, bit, owner[bit])
					break
				}
				owner[bit] = e.Name
			}
		}
	}
}

// TestNames checks that names are unique.
func TestNames(t *testing.T) {
	for _, l := range layouts {
		seen := map[string]bool{}
		for _, e := range l.fields {
			if e.Name == "" || seen[e.Name] {
				t.Errorf("%s: field %q has no name or a duplicate one", l.Name, e.Name)
			}
			seen[e.Name] = true
		}
	}
}

// TestHeaders checks that the layouts of commands have the fields of their headers.
func TestHeaders(t *testing.T) {
	for l, want := range map[*Layout]Field{CreateQPIn: CmdUID, CreateQPOut: CmdSyndrome} {
		found := false
		for f := range l.Fields {
			found = found || f == want
		}
		if !found {
			t.Errorf("%s has no field %s", l.Name, want.Name)
		}
	}
}

// TestNested checks that nested fields have the size of their layout.
func TestNested(t *testing.T) {
	n := 0
	for _, l := range layouts {
		for _, e := range l.fields {
			if e.within == nil {
				continue
			}
			n++
			if e.Width != e.within.Size*8 || e.Offset%32 != 0 {
				t.Errorf("%s.%s: %d bits at %d, %s has %d", l.Name, e.Name, e.Width, e.Offset, e.within.Name, e.within.Size*8)
			}
		}
	}
	if n == 0 {
		t.Error("nothing is nested")
	}
}
