package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/goverbs/goverbs"

// A file is one Go file of the tree.
type file struct {
	path      string // from the tree's root, with slashes
	module    string // the nested module's folder, or empty
	fset      *token.FileSet
	ast       *ast.File
	lines     int
	generated bool
}

func (f *file) test() bool  { return strings.HasSuffix(f.path, "_test.go") }
func (f *file) dir() string { return path.Dir(f.path) }

// imports lists what the file imports, packages of this module by their path
// in it.
func (f *file) imports() []string {
	var all []string
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser took it
		}
		all = append(all, strings.TrimPrefix(name, module+"/"))
	}
	return all
}

// root is the module's root: tests run in their package's directory.
var root = filepath.Join("..", "..")

// walk calls f for each file of the tree that belongs to the project.
func walk(t *testing.T, f func(name string, d fs.DirEntry) error) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		return f(name, d)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// files parses the Go files of the root module; those of nested modules and of
// testdata are left out.
func files(t *testing.T) (root []*file) {
	t.Helper()
	for _, f := range allFiles(t) {
		if f.module == "" {
			root = append(root, f)
		}
	}
	return root
}

// parsedFiles are those that the first test has asked for.
var parsedFiles []*file

// allFiles is files with those of nested modules.
func allFiles(t *testing.T) []*file {
	t.Helper()
	if parsedFiles != nil {
		return parsedFiles
	}
	var all []*file
	fset := token.NewFileSet()
	nested := ""
	walk(t, func(name string, d fs.DirEntry) error {
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if nested != "" && !strings.HasPrefix(rel, nested+"/") {
			nested = ""
		}
		if d.IsDir() {
			if d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != root {
				nested = rel
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		parsed, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		all = append(all, &file{path: rel, module: nested, fset: fset, ast: parsed,
			lines: fset.File(parsed.FileStart).LineCount(), generated: ast.IsGenerated(parsed)})
		return nil
	})
	if len(all) < 50 {
		t.Fatalf("only %d Go files were found", len(all))
	}
	parsedFiles = all
	return all
}

// at is where a node of the file is.
func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}
