package arch

import (
	"cmp"
	"go/ast"
	"go/build"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// upwardLimits limits, for each package, how many dependencies between its files may
// run upward. A file depends on another one of its package if it uses something that
// the other declares. The files are put into the order in which the fewest
// dependencies run upward, from a file to one that comes later. So a reader who
// takes the files in this order has mostly read what a file uses.
//
// Lower a limit when the number falls. go test -v prints the order.
var upwardLimits = map[string]int{
	"uverbs":        7,
	"cm":            4,
	"provider/mlx5": 39,
	"rdma":          39,
	"rsocket":       17,
}

func TestFileDependencies(t *testing.T) {
	exports := exportData(t, slices.Sorted(maps.Keys(upwardLimits)))
	for pkg, limit := range upwardLimits {
		t.Run(pkg, func(t *testing.T) {
			g := newFileGraph(t, pkg, exports)
			order := g.order()
			up := g.upward(order)
			t.Logf("%d of %d dependencies run upward in the order\n%s", len(up), g.edges(),
				strings.Join(g.names(order), " "))
			if len(up) <= limit {
				if len(up) < limit {
					t.Errorf("%d dependencies run upward: lower the limit, which is %d", len(up), limit)
				}
				return
			}
			t.Errorf("%d dependencies run upward, more than %d: "+
				"move declarations to the files that they need, or split files", len(up), limit)
			for _, e := range up {
				t.Errorf("%s uses from %s: %s", g.files[e.from], g.files[e.to], strings.Join(g.uses[e], ", "))
			}
		})
	}
}

// A fileGraph contains the dependencies between the files of a package. Files are
// denoted by their indices.
type fileGraph struct {
	files []string
	uses  map[fileEdge][]string // the sorted names that a file uses of another
}

type fileEdge struct{ from, to int }

// newFileGraph type-checks a package without its tests.
func newFileGraph(t *testing.T, pkg string, exports map[string]string) *fileGraph {
	t.Helper()
	var fset *token.FileSet
	var syntax []*ast.File
	g := &fileGraph{uses: map[fileEdge][]string{}}
	for _, f := range files(t) {
		if f.dir() == pkg && !f.test() && f.built(t) {
			fset = f.fset
			g.files = append(g.files, path.Base(f.path))
			syntax = append(syntax, f.ast)
		}
	}
	lookup := func(name string) (io.ReadCloser, error) { return os.Open(exports[name]) }
	conf := types.Config{Importer: importer.ForCompiler(fset, "gc", lookup)}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	checked, err := conf.Check(module+"/"+pkg, fset, syntax, info)
	if err != nil {
		t.Fatal(err)
	}
	index := func(p token.Pos) int {
		return slices.Index(g.files, filepath.Base(fset.Position(p).Filename))
	}
	for id, obj := range info.Uses {
		if obj.Pkg() != checked || !obj.Pos().IsValid() {
			continue
		}
		if e := (fileEdge{index(id.Pos()), index(obj.Pos())}); e.from != e.to && !slices.Contains(g.uses[e], obj.Name()) {
			g.uses[e] = append(g.uses[e], obj.Name())
		}
	}
	for _, names := range g.uses {
		slices.Sort(names)
	}
	return g
}

// built reports whether a build without tags has the file.
func (f *file) built(t *testing.T) bool {
	t.Helper()
	ok, err := build.Default.MatchFile(filepath.Join(root, f.dir()), path.Base(f.path))
	if err != nil {
		t.Fatal(err)
	}
	return ok
}

// exportData returns the files with the export data of what the packages import.
func exportData(t *testing.T, packages []string) map[string]string {
	t.Helper()
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}}={{.Export}}"}
	for _, p := range packages {
		args = append(args, "./"+p)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "=")
		files[name] = file
	}
	return files
}

func (g *fileGraph) edges() int { return len(g.uses) }

func (g *fileGraph) names(order []int) []string {
	var names []string
	for _, f := range order {
		names = append(names, g.files[f])
	}
	return names
}

// upward returns the edges that oppose an order.
func (g *fileGraph) upward(order []int) []fileEdge {
	place := make([]int, len(order))
	for i, f := range order {
		place[f] = i
	}
	var up []fileEdge
	for e := range g.uses {
		if place[e.from] < place[e.to] {
			up = append(up, e)
		}
	}
	slices.SortFunc(up, func(a, b fileEdge) int { return cmp.Or(a.from-b.from, a.to-b.to) })
	return up
}

// order returns an order of the files in which few edges run upward. To find the
// best one is hard, so it takes the best of several local optima. The result is the
// same in each run.
func (g *fileGraph) order() []int {
	uses := make([][]bool, len(g.files))
	for i := range uses {
		uses[i] = make([]bool, len(g.files))
	}
	for e := range g.uses {
		uses[e.from][e.to] = true
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	var best []int
	for range 200 {
		order := rnd.Perm(len(g.files))
		for improve(order, uses) {
		}
		if best == nil || len(g.upward(order)) < len(g.upward(best)) {
			best = order
		}
	}
	return best
}

// improve moves each file to the place where the fewest of its edges run upward. It
// reports whether the order has become better.
func improve(order []int, uses [][]bool) (better bool) {
	for f := range uses {
		from := slices.Index(order, f)
		// The change of the number of upward edges when f moves past its neighbors, one
		// after the other.
		to, least := from, 0
		for _, step := range []int{-1, 1} {
			change := 0
			for i := from + step; i >= 0 && i < len(order); i += step {
				switch other := order[i]; {
				case uses[f][other] && !uses[other][f]:
					change -= step
				case uses[other][f] && !uses[f][other]:
					change += step
				}
				if change < least {
					to, least = i, change
				}
			}
		}
		if to != from {
			copy(order, slices.Insert(slices.Delete(slices.Clone(order), from, from+1), to, f))
			better = true
		}
	}
	return better
}
