package arch

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// programs are the directories of what is not part of the library.
var programs = []string{"cmd/", "examples/", "bench/", testbed + "/"}

// withoutCause lists the files that may use the value of ctx.Err(): ctxerr, and those whose contexts end without a
// cause.
var withoutCause = []string{"internal/ctxerr/ctxerr.go", "rsocket/listener.go"}

// TestErrorsOfContexts checks that the library only asks ctx.Err() whether ctx has ended. The error to return is
// ctxerr.Of(ctx), which also matches what the caller gave as the cause.
func TestErrorsOfContexts(t *testing.T) {
	for _, f := range files(t) {
		inProgram := func(dir string) bool { return strings.HasPrefix(f.path, dir) }
		if f.test() || slices.ContainsFunc(programs, inProgram) || slices.Contains(withoutCause, f.path) {
			continue
		}
		compared := map[ast.Node]bool{}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BinaryExpr: // with nil, before its operands are visited
				compared[n.X] = true
			case *ast.CallExpr:
				if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Err" && isContext(sel.X) && !compared[n] {
					t.Errorf("%s: use ctxerr.Of instead of the value of Err", f.at(n))
				}
			}
			return true
		})
	}
}

// isContext reports whether an expression has the name of a context.
func isContext(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(x.Name), "ctx")
	case *ast.SelectorExpr:
		return isContext(x.Sel)
	}
	return false
}
