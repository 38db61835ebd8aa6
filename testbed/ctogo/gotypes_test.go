package ctogo

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/goverbs/goverbs"

// root is the repository's root. Tests run in their package's directory.
var root = filepath.Join("..", "..")

// public maps the names of the packages in the tables to their directories.
var public = map[string]string{"cm": "cm", "devx": "provider/mlx5/devx", "ether": "uverbs/ether",
	"mlx5": "provider/mlx5", "rsocket": "rsocket",
	"uverbs": "uverbs"}

// An importer imports the packages of this module. All other packages are empty,
// because their declarations are not needed.
type importer map[string]*types.Package

func (i importer) Import(name string) (*types.Package, error) {
	if p := i[name]; p != nil {
		return p, nil
	}
	dir, ours := strings.CutPrefix(name, module+"/")
	if !ours {
		p := types.NewPackage(name, path.Base(name))
		p.MarkComplete()
		i[name] = p
		return p, nil
	}
	dir = filepath.Join(root, dir)
	found, err := build.Default.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, f := range found.GoFiles {
		parsed, err := parser.ParseFile(fset, filepath.Join(dir, f), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, parsed)
	}
	config := types.Config{Importer: i, IgnoreFuncBodies: true, FakeImportC: true, Error: func(error) {}}
	p, err := config.Check(name, fset, files, nil)
	if p == nil {
		return nil, err
	}
	i[name] = p // err is due to the empty packages
	return p, nil
}

// load imports the packages that the tables name.
func load(t *testing.T) importer {
	t.Helper()
	i := importer{}
	for _, dir := range public {
		if _, err := i.Import(module + "/" + dir); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// find looks up a name such as cm.ID.Connect: an exported name of a package,
// or a method or a field of one.
func (i importer) find(name string) error {
	parts := strings.Split(name, ".")
	dir, ok := public[parts[0]]
	if !ok || len(parts) < 2 || len(parts) > 3 {
		return fmt.Errorf("%s: want package.Name or package.Type.Name", name)
	}
	p := i[module+"/"+dir]
	object := p.Scope().Lookup(parts[1])
	if object == nil || !object.Exported() {
		return fmt.Errorf("package %s has no %s", parts[0], parts[1])
	}
	if len(parts) == 2 {
		return nil
	}
	t, ok := object.(*types.TypeName)
	if !ok {
		return fmt.Errorf("%s.%s is not a type", parts[0], parts[1])
	}
	member, _, _ := types.LookupFieldOrMethod(t.Type(), true, p, parts[2])
	if member == nil || !member.Exported() {
		return fmt.Errorf("%s.%s has no %s", parts[0], parts[1], parts[2])
	}
	return nil
}
