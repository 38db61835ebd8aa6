package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A suite is a module of pyverbs' tests, and the Go test whose subtests have
// the names of the module's tests.
type suite struct {
	module string // of tests/
	pkg    string // from the module's root
	goTest string
	notes  string // what the two do differently
}

// suites is the one list of what the page has.
var suites = []suite{
	{"test_rdmacm", "cm", "TestDeviceRDMACM",
		"A Python test has two processes, a Go test two goroutines. Python's `test_rdmacm_async_ex_leave_multicast_traffic`\n" +
			"passes when its processes hang; Go's has a third member of the group tell when nothing can come any more."},
}

// goNames lists the subtests that the suite's Go test has, by its source: the
// string literals that begin with "test_".
func (s suite) goNames(root string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(root, s.pkg, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == s.goTest {
				names = append(names, subtests(fn)...)
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("package %s has no %s with subtests", s.pkg, s.goTest)
	}
	slices.Sort(names)
	return names, nil
}

func subtests(fn *ast.FuncDecl) (names []string) {
	ast.Inspect(fn, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if name, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(name, "test_") {
				names = append(names, name)
			}
		}
		return true
	})
	return names
}
