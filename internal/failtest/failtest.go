// Package failtest holds the exported functions of a package against its
// tests: each that answers an error is made to, and its comment lists that
// error.
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

// A Failure is what came of a call that fails on purpose.
type Failure struct {
	Err  error
	Want error
	// Doc is what the function's comment has to say of it; "" for Want's name.
	Doc string
}

// A Package is what its tests know of it.
type Package struct {
	Failures   map[string]Failure // by "Function" or "Type.Method"
	Names      map[error]string   // what comments call an error
	CannotFail []string           // whose error is that of an interface
}

// Check reports the functions of the package in the working directory that no
// call makes fail, or whose comment does not list the error. A comment may
// leave that to another: "The errors are those of [Type.Method]."
func (p *Package) Check(t testing.TB) {
	t.Helper()
	docs, err := comments(".")
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) < 60 {
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
			add("%s: no call here makes it fail", name)
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
			add("%s is no exported function that answers an error", name)
		}
	}
	slices.Sort(all)
	return all
}

var (
	others = regexp.MustCompile(`(?:\[[\w.]+\](?:, | and )?)+`)
	link   = regexp.MustCompile(`\[([\w.]+)\]`)
)

// says tells whether the comment of a function says something, or one does
// whose errors it calls its own. Those that have been asked are skipped.
func says(docs map[string]string, name, what string, asked []string) bool {
	doc := docs[name]
	if strings.Contains(doc, what) {
		return true
	}
	for _, after := range strings.Split(doc, "errors are those of ")[1:] {
		span := others.FindStringIndex(after)
		if span == nil || span[0] != 0 {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(after[:span[1]], -1) {
			if !slices.Contains(asked, m[1]) && says(docs, m[1], what, append(asked, name)) {
				return true
			}
		}
	}
	return false
}

// comments are those of a package's exported functions that answer an error,
// each as one line.
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
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.IsExported() && answersError(f) {
				if name := qualified(f); ast.IsExported(name) {
					docs[name] = strings.Join(strings.Fields(f.Doc.Text()), " ")
				}
			}
		}
	}
	return docs, nil
}

func answersError(f *ast.FuncDecl) bool {
	return f.Type.Results != nil && slices.ContainsFunc(f.Type.Results.List, func(r *ast.Field) bool {
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
