package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
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
	generated bool
}

func (f *file) test() bool  { return strings.HasSuffix(f.path, "_test.go") }
func (f *file) dir() string { return path.Dir(f.path) }

// imports returns the import paths of the file. Those of this tree are relative to
// its root.
func (f *file) imports() []string {
	var all []string
	for _, spec := range f.ast.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // impossible: the parser accepted it
		}
		all = append(all, strings.TrimPrefix(name, module+"/"))
	}
	return all
}

// root is the module's root. Tests run in their package's directory.
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

// testbed is the nested module of the test bed. Its packages are in the map of the
// layers.
const testbed = "testbed"

// files parses the Go files of the root module and of the test bed, without those
// of other nested modules and of testdata.
func files(t *testing.T) []*file {
	t.Helper()
	return slices.DeleteFunc(slices.Clone(allFiles(t)), func(f *file) bool {
		return f.module != "" && f.module != testbed
	})
}

// parsedFiles caches the result of allFiles.
var parsedFiles []*file

// allFiles is like files, but includes the files of all nested modules.
func allFiles(t *testing.T) []*file {
	t.Helper()
	if parsedFiles != nil {
		return parsedFiles
	}
	var all []*file
	fset := token.NewFileSet()
	modules := []string{""} // that enclose the file, the innermost last
	walk(t, func(name string, d fs.DirEntry) error {
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		for len(modules) > 1 && !strings.HasPrefix(rel, modules[len(modules)-1]+"/") {
			modules = modules[:len(modules)-1]
		}
		if d.IsDir() {
			if d.Name() == "testdata" {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil && name != root {
				modules = append(modules, rel)
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
		all = append(all, &file{path: rel, module: modules[len(modules)-1], fset: fset, ast: parsed,
			generated: ast.IsGenerated(parsed)})
		return nil
	})
	if len(all) < 50 {
		t.Fatalf("found only %d Go files", len(all))
	}
	parsedFiles = all
	return all
}

// at returns the path and line of a node.
func (f *file) at(n ast.Node) string {
	return f.path + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}
