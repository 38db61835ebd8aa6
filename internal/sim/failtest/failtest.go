// Package failtest checks that a package's tests make every exported function
// that returns an error fail at least once, and that the function's doc comment
// lists that error.
package failtest

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A Failure is the result of a call that fails on purpose.
type Failure struct {
	Err  error
	Want error
	// Doc is the text that the function's doc comment must contain. The default
	// is the name of Want.
	Doc string
}

// A Package describes the failures that a package's tests provoke.
type Package struct {
	Failures map[string]Failure // by "Function" or "Type.Method"
	Names    map[error]string   // the name of each error in doc comments
	// CannotFail lists functions that return an error only because an interface
	// requires it. Their doc comments must say "cannot fail".
	CannotFail []string
}

// Check checks the package in the working directory. It reports the functions
// that are missing in Failures and those whose doc comment does not list the
// error. A comment may refer to other functions: "The errors are those of
// [Type.Method]."
func (p *Package) Check(t testing.TB) {
	t.Helper()
	docs, err := comments(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 10 {
		t.Fatalf("only %d functions were found", len(docs))
	}
	for _, problem := range p.problems(docs) {
		t.Error(problem)
	}
}

func (p *Package) problems(docs map[string]string) (all []string) {
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	for name, doc := range docs {
		f, found := p.Failures[name]
		switch {
		case slices.Contains(p.CannotFail, name):
			if !strings.Contains(doc, "cannot fail") {
				add("%s: the comment does not say that it cannot fail", name)
			}
			continue
		case !found:
			add("%s: no test makes it fail", name)
			continue
		case !errors.Is(f.Err, f.Want):
			add("%s: error %v, want %v", name, f.Err, f.Want)
		}
		if f.Doc == "" {
			f.Doc = p.Names[f.Want]
		}
		if f.Doc == "" || !says(docs, name, f.Doc, nil) {
			add("%s: the comment does not say %q:\n%s", name, f.Doc, doc)
		}
	}
	for name := range p.Failures {
		if _, found := docs[name]; !found {
			add("%s is not an exported function that returns an error", name)
		}
	}
	slices.Sort(all)
	return all
}

var (
	others = regexp.MustCompile(`(?:\[[\w.]+\](?:, | and )?)+`)
	link   = regexp.MustCompile(`\[([\w.]+)\]`)
)

// says reports whether the comment of the function name contains text, or
// whether the comment of a function does to whose errors it refers. It skips
// the functions in visited.
func says(docs map[string]string, name, text string, visited []string) bool {
	doc := docs[name]
	if strings.Contains(doc, text) {
		return true
	}
	for _, after := range strings.Split(doc, "errors are those of ")[1:] {
		span := others.FindStringIndex(after)
		if span == nil || span[0] != 0 {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(after[:span[1]], -1) {
			if !slices.Contains(visited, m[1]) && says(docs, m[1], text, append(visited, name)) {
				return true
			}
		}
	}
	return false
}

// comments returns the doc comments of the exported functions in dir that return
// an error, each as one line.
func comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && returnsError(f) {
				if name := qualified(f); ast.IsExported(name) {
					docs[name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
		}
	}
	return docs, nil
}

// returnsError reports whether a function returns errors of its own. Unwrap
// returns that of another.
func returnsError(f *ast.FuncDecl) bool {
	return f.Name.Name != "Unwrap" && f.Type.Results != nil && slices.ContainsFunc(f.Type.Results.List,
		func(r *ast.Field) bool {
			id, ok := r.Type.(*ast.Ident)
			return ok && id.Name == "error"
		})
}

func qualified(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name + "." + f.Name.Name
}
