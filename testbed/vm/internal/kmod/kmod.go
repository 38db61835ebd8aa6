// Package kmod finds kernel modules in a directory lib/modules/RELEASE, and
// their dependencies.
package kmod

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ulikunitz/xz"
)

// A Tree has the modules of one kernel.
type Tree struct {
	dir     string
	files   map[string]string // path by name
	builtin map[string]bool
}

// A Module is a module that can be loaded.
type Module struct {
	Name string
	Data []byte // the ELF file, decompressed
}

// Open reads the names of a kernel's modules.
func Open(dir string) (*Tree, error) {
	t := &Tree{dir: dir, files: make(map[string]string), builtin: make(map[string]bool)}
	err := filepath.WalkDir(filepath.Join(dir, "kernel"), func(path string, d fs.DirEntry, err error) error {
		if name, ok := moduleName(path); err == nil && ok && d.Type().IsRegular() {
			t.files[name] = path
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("kernel modules: %w", err)
	}
	f, err := os.Open(filepath.Join(dir, "modules.builtin"))
	if err != nil {
		return nil, fmt.Errorf("kernel modules: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := moduleName(lines.Text()); ok {
			t.builtin[name] = true
		}
	}
	return t, lines.Err()
}

// moduleName returns the name of a module from its path. The kernel does not
// distinguish "-" and "_".
func moduleName(path string) (string, bool) {
	name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(path), ".xz"), ".ko")
	return normal(name), ok
}

func normal(name string) string { return strings.ReplaceAll(name, "-", "_") }

// A MissingError means that a kernel does not have a module, neither as a file
// nor built in.
type MissingError struct {
	Module   string
	NeededBy string // "" if it was requested directly
	Dir      string
}

// Error implements error.
func (e *MissingError) Error() string {
	by := ""
	if e.NeededBy != "" {
		by = ", which " + e.NeededBy + " needs"
	}
	return fmt.Sprintf("the kernel of %s has no module %s%s", filepath.Base(e.Dir), e.Module, by)
}

// Has reports whether the kernel has a module, as a file or built in.
func (t *Tree) Has(name string) bool {
	return t.files[normal(name)] != "" || t.builtin[normal(name)]
}

// Resolve returns the named modules and their dependencies, in loading order,
// without built-in modules.
func (t *Tree) Resolve(names ...string) ([]Module, error) {
	r := &resolver{tree: t, seen: make(map[string]bool)}
	for _, name := range names {
		if err := r.add(normal(name), ""); err != nil {
			return nil, err
		}
	}
	return r.order, nil
}

type resolver struct {
	tree  *Tree
	seen  map[string]bool
	order []Module
}

func (r *resolver) add(name, neededBy string) error {
	if r.seen[name] || r.tree.builtin[name] {
		return nil
	}
	r.seen[name] = true
	path := r.tree.files[name]
	if path == "" {
		return &MissingError{Module: name, NeededBy: neededBy, Dir: r.tree.dir}
	}
	data, err := read(path)
	if err != nil {
		return err
	}
	depends, soft, err := Depends(data)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, d := range soft {
		if d = r.tree.provider(normal(d)); d != "" {
			depends = append(depends, d)
		}
	}
	for _, d := range depends {
		if err := r.add(normal(d), name); err != nil {
			return err
		}
	}
	r.order = append(r.order, Module{Name: name, Data: data})
	return nil
}

// provider returns the module that a soft dependency means, or "" if the kernel has none. It may be an algorithm of the
// kernel's cryptography, an alias of several modules, of which the one in C runs on each machine.
func (t *Tree) provider(name string) string {
	for _, n := range []string{name, name + "_generic"} {
		if t.Has(n) {
			return n
		}
	}
	return ""
}

// read reads a module, and decompresses it if it is an xz file.
func read(path string) ([]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil || !strings.HasSuffix(path, ".xz") {
		return data, err
	}
	r, err := xz.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if data, err = io.ReadAll(r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return data, nil
}

// Depends returns the direct dependencies of a module, and what should be loaded before it if there is such a module.
func Depends(module []byte) (depends, soft []string, err error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, nil, fmt.Errorf("not a kernel module: no section .modinfo")
	}
	info, err := section.Data()
	if err != nil {
		return nil, nil, err
	}
	depends, soft = parseDepends(info)
	return depends, soft, nil
}

// parseDepends parses the entries "depends=a,b" and "softdep=pre: a b post: c"
// of a .modinfo section, whose entries end in zero bytes.
func parseDepends(info []byte) (depends, soft []string) {
	for entry := range bytes.SplitSeq(info, []byte{0}) {
		if list, ok := strings.CutPrefix(string(entry), "depends="); ok {
			depends = append(depends, strings.Split(list, ",")...)
		}
		if list, ok := strings.CutPrefix(string(entry), "softdep="); ok {
			before := false
			for _, word := range strings.Fields(list) {
				if strings.HasSuffix(word, ":") {
					before = word == "pre:"
				} else if before {
					soft = append(soft, word)
				}
			}
		}
	}
	return slices.DeleteFunc(depends, func(s string) bool { return s == "" }), soft
}
