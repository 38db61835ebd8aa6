package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// public lists the packages whose API programs use.
var public = []string{"uverbs", "uverbs/ether", "cm", "mmio", "provider/..."}

// Programs cannot name types of internal packages, and pkg.go.dev does not show their
// fields. So no exported declaration mentions one.
func TestAPIWithoutInternalTypes(t *testing.T) {
	checked := 0
	for _, f := range files(t) {
		if f.test() || !matchesAny(public, f.dir()) {
			continue
		}
		internal := map[string]bool{}
		for _, imp := range f.imports() {
			if strings.HasPrefix(imp, "internal/") {
				internal[path.Base(imp)] = true
			}
		}
		for _, name := range exportedNames(t, f, internal) {
			t.Errorf("%s: the API mentions %s of an internal package", f.path, name)
		}
		checked++
	}
	if checked < 100 {
		t.Errorf("only %d files have been checked", checked)
	}
}

// TestConstantsAreReadable checks that pkg.go.dev shows the value of each exported constant, and not
// the name of an internal one. Tests of the packages compare these values with the kernel's.
func TestConstantsAreReadable(t *testing.T) {
	for _, f := range files(t) {
		if f.test() || !slices.Contains(api, f.dir()) {
			continue
		}
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				if !v.Names[0].IsExported() {
					continue
				}
				for _, x := range v.Values {
					for _, name := range hiddenNames(x) {
						t.Errorf("%s: the value of %s is %s, which the documentation does not show", f.at(v), v.Names[0].Name, name)
					}
				}
			}
		}
	}
}

// hiddenNames returns the names in x that documentation shows without a value: of a package other than
// time and math, or not exported.
func hiddenNames(x ast.Expr) (names []string) {
	ast.Inspect(x, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if p, ok := n.X.(*ast.Ident); ok && p.Name != "time" && p.Name != "math" {
				names = append(names, p.Name+"."+n.Sel.Name)
			}
			return false
		case *ast.Ident:
			if !n.IsExported() && n.Name != "iota" && types.Universe.Lookup(n.Name) == nil {
				names = append(names, n.Name)
			}
		}
		return true
	})
	return names
}

// exportedNames returns the names of packages in pkgs that exported declarations of f
// mention. It parses the file again, because ast.FileExports changes the tree.
func exportedNames(t *testing.T, f *file, pkgs map[string]bool) (names []string) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, f.path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.FileExports(tree)
	for _, d := range tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil && !exportedReceiver(fn.Recv) {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BlockStmt: // a function's body
				return false
			case *ast.ValueSpec:
				n.Values = nil
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && pkgs[x.Name] {
					names = append(names, x.Name+"."+n.Sel.Name)
				}
			}
			return true
		})
	}
	return names
}
