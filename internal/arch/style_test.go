package arch

import (
	"bytes"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"strings"
	"testing"
)

const mostLines = 400

func TestFileLength(t *testing.T) {
	for _, f := range allFiles(t) {
		if f.lines > mostLines && !f.generated {
			t.Errorf("%s has %d lines: split it, %d are the most", f.path, f.lines, mostLines)
		}
	}
}

// documented are the packages whose exported names are all explained.
var documented = []string{"uverbs", "cm", "provider/...", "mmio"}

func TestExportedNamesAreDocumented(t *testing.T) {
	for _, f := range files(t) {
		if f.test() || !fitsAny(documented, f.dir()) && f.dir() != "provider" {
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

// obvious methods are those of well-known interfaces.
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

// undocumentedSpecs finds names without a comment of their own or of their
// group.
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

// hosts are archives and proxies. Which one is used is for the machine's own
// configuration to say. They are spelled apart, so as not to find themselves.
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
