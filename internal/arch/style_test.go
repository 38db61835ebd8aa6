package arch

import (
	"bytes"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// maxFuncLines limits functions outside tests. Most are under 40 lines.
const maxFuncLines = 60

// longFuncs are exempt from maxFuncLines. Splitting them would add calls to a hot
// path or duplicate state.
var longFuncs = []string{
	"provider/mlx5/poll.go: Poll",  // the hot path of polling, in one stack frame
	"bench/cgo/rounds.go: measure", // one table of C calls
}

func TestFunctionLength(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.test() || f.generated {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil {
				continue
			}
			lines := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1
			if lines > maxFuncLines && !slices.Contains(longFuncs, f.path+": "+fn.Name.Name) {
				t.Errorf("%s: %s has %d lines, more than %d: split it", f.at(fn), fn.Name.Name, lines, maxFuncLines)
			}
		}
	}
}

// maxColumns limits the lines of Go files. A tab is one column.
const maxColumns = 120

func TestLineLength(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.generated {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.path)))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for line := range strings.Lines(string(b)) {
			n++
			if columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > maxColumns {
				t.Errorf("%s:%d: %d columns, more than %d: break the line", f.path, n, columns, maxColumns)
			}
		}
	}
}

// documented lists the packages whose exported names all need a doc comment.
var documented = []string{"uverbs", "uverbs/ether", "cm", "provider/...", "verbstest", "mmio", "internal/driver",
	"internal/provider"}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range files(t) {
		if f.test() || !matchesAny(documented, f.dir()) {
			continue
		}
		for _, d := range f.ast.Decls {
			for _, n := range undocumented(d) {
				t.Errorf("%s: %s has no comment", f.at(d), n)
			}
		}
	}
}

func undocumented(d ast.Decl) []string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && !obvious(d) && (d.Recv == nil || exportedReceiver(d.Recv)) {
			return []string{d.Name.Name}
		}
	case *ast.GenDecl:
		if d.Tok != token.IMPORT {
			return undocumentedSpecs(d)
		}
	}
	return nil
}

// obvious reports whether d is a method of a well-known interface, which needs no
// comment.
func obvious(d *ast.FuncDecl) bool {
	switch d.Name.Name {
	case "Error", "String", "Is", "Unwrap":
		return d.Recv != nil
	}
	return false
}

func exportedReceiver(recv *ast.FieldList) bool {
	t := recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	name, ok := t.(*ast.Ident)
	return !ok || name.IsExported()
}

// undocumentedSpecs returns the names that have no comment, neither of their own
// nor on their group.
func undocumentedSpecs(d *ast.GenDecl) (names []string) {
	for _, spec := range d.Specs {
		switch s := spec.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				names = append(names, s.Name.Name)
			}
		case *ast.ValueSpec:
			for _, n := range s.Names {
				if n.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					names = append(names, n.Name)
				}
			}
		}
	}
	return names
}

// hosts lists archives and proxies that no file may name, because the machine's
// configuration decides which are used. The names are split here so that the
// test does not find them in this file.
var hosts = [][]byte{
	[]byte("deb.debian" + ".org"), []byte("ftp.debian" + ".org"), []byte("snapshot.debian" + ".org"),
	[]byte("security.debian" + ".org"), []byte("archive.ubuntu" + ".com"), []byte("proxy.golang" + ".org"),
	[]byte("sum.golang" + ".org"), []byte("goproxy" + ".io"), []byte("goproxy" + ".cn"),
}

func TestNoArchiveHosts(t *testing.T) {
	walk(t, func(name string, d fs.DirEntry) error {
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, h := range hosts {
			if bytes.Contains(b, h) {
				t.Errorf("%s names %s", strings.TrimPrefix(name, root+"/"), h)
			}
		}
		return nil
	})
}
