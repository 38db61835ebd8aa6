package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// api lists the packages whose functions programs call.
var api = []string{"uverbs", "uverbs/ether", "cm", "rdma", "rsocket", "mmio", "provider/mlx5", "provider/mlx5/devx",
	"verbstest"}

// TestExportedFunctionsArePreemptible checks that no exported function is marked nosplit. A function checks
// for preemption where it checks the bounds of its stack, which takes two instructions. A loop of calls
// without this check can be stopped only by a signal, which programs turn off (GODEBUG=asyncpreemptoff=1),
// and a garbage collection would wait for the loop. What these functions call may be nosplit, since the
// check of the caller suffices.
func TestExportedFunctionsArePreemptible(t *testing.T) {
	for _, f := range files(t) {
		if f.test() || !slices.Contains(api, f.dir()) {
			continue
		}
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Doc == nil || !fn.Name.IsExported() || fn.Recv != nil && !ast.IsExported(receiver(fn)) {
				continue
			}
			for _, c := range fn.Doc.List {
				if strings.HasPrefix(c.Text, "//go:nosplit") {
					t.Errorf("%s: %s is exported and nosplit: mark what it calls instead", f.at(fn), fn.Name.Name)
				}
			}
		}
	}
}

// receiver returns the name of the type of a method.
func receiver(fn *ast.FuncDecl) string {
	typ := fn.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}
