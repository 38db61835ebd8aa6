//go:build vm

package ctogo

import (
	"debug/elf"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goverbs/goverbs/testbed/vm/bed"
)

// TestLibraries compares the lists with the libraries of the guests and their headers. A
// library may be older than its list and lack the newest version nodes.
func TestLibraries(t *testing.T) {
	b, err := bed.Ensure(t.Context(), nil, bed.Root)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := b.Tree(bed.Root)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			l.testHeaders(t, filepath.Join(tree, "usr/include", l.dir), true)
			exported := l.exported(t, filepath.Join(tree, l.file))
			nodes := map[string]bool{}
			for _, node := range exported {
				nodes[node] = true
			}
			listed := l.symbols(t)
			for name, where := range listed {
				if !nodes[where] {
					if exported[name] == "" && strings.HasPrefix(where, l.node) {
						t.Logf("%s lacks %s of %s", filepath.Base(l.file), name, where)
					}
					delete(listed, name)
				}
			}
			if d := cmp.Diff(exported, listed); d != "" {
				t.Errorf("testdata/%s.txt: (-%s +list)\n%s", l.name, filepath.Base(l.file), d)
			}
		})
	}
}

// exported returns the functions of a library with their version nodes.
func (l library) exported(t *testing.T, file string) map[string]string {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF && elf.ST_TYPE(s.Info) == elf.STT_FUNC && strings.HasPrefix(s.Version, l.node) {
			all[s.Name] = max(all[s.Name], s.Version) // there may be an old version of the function too
		}
	}
	if len(all) == 0 {
		t.Fatalf("%s exports no function of %s", file, l.node)
	}
	return all
}
