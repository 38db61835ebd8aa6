package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/results"
)

// The page and the charts in docs are those of the figures.
func TestPublished(t *testing.T) {
	dir := t.TempDir()
	if err := run([]string{"../figures/go-and-c.json", filepath.Join(dir, "go-and-c.md")}); err != nil {
		t.Fatal(err)
	}
	const docs, fix = "../../docs", "go run ./bench/report bench/figures/go-and-c.json docs/go-and-c.md"
	drawn, err := filepath.Glob(filepath.Join(dir, "charts", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(drawn, filepath.Join(dir, "go-and-c.md"), filepath.Join(dir, "evidence", "go-and-c.md")) {
		name, err := filepath.Rel(dir, file)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatalf("%v; run %s", err, fix)
		}
		if want, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is not what the figures give (%v): run %s", name, err, fix)
		}
	}
	published, err := filepath.Glob(filepath.Join(docs, "charts", "*"))
	if err != nil || len(published) != len(drawn) {
		t.Errorf("docs/charts has %d files, the page has %d charts (%v)", len(published), len(drawn), err)
	}
	var pages strings.Builder
	for _, name := range []string{"go-and-c.md", "evidence/go-and-c.md"} {
		page, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		pages.Write(page)
	}
	for _, file := range published {
		if n := strings.Count(pages.String(), "charts/"+filepath.Base(file)+")"); n != 1 {
			t.Errorf("%s is %d times on the pages", file, n)
		}
	}
}

// position reads the attributes of an element that say where it is.
type position struct{ x, y, width, height float64 }

// elements returns the positions of the elements of a name in an SVG, and an error
// if it is not XML.
func elements(svg []byte, name string) (all []position, err error) {
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		start, ok := token.(xml.StartElement)
		if !ok || start.Name.Local != name {
			continue
		}
		var p position
		for _, a := range start.Attr {
			target := map[string]*float64{"x": &p.x, "y": &p.y, "width": &p.width, "height": &p.height}[a.Name.Local]
			if target == nil {
				continue
			}
			if *target, err = parse(a.Value); err != nil {
				return nil, err
			}
		}
		all = append(all, p)
	}
}

// In every published chart bars do not overlap, and nothing is outside the picture.
func TestLayout(t *testing.T) {
	r, err := results.Read("../figures/go-and-c.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range r.Charts() {
		rects, err := elements(draw(c), "rect")
		if err != nil {
			t.Fatalf("%s: %v", c.File, err)
		}
		page := rects[0]
		for i, a := range rects[1:] {
			if a.x < page.x || a.y < page.y || a.x+a.width > page.width || a.y+a.height > page.height || a.width < 0 {
				t.Errorf("%s: %v is outside", c.File, a)
			}
			for _, b := range rects[i+2:] {
				if a.x < b.x+b.width && b.x < a.x+a.width && a.y < b.y+b.height && b.y < a.y+a.height {
					t.Errorf("%s: %v and %v overlap", c.File, a, b)
				}
			}
		}
		texts, err := elements(draw(c), "text")
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range texts {
			if x.x < 0 || x.x > page.width || x.y < 0 || x.y > page.height {
				t.Errorf("%s: a text at %v", c.File, x)
			}
		}
	}
}

// A value that a program does not have is no bar.
func TestMissingBar(t *testing.T) {
	c := results.Chart{Title: "a < b", Rows: []string{"x"}, Bars: []results.Bars{{Name: results.Go, Label: "Go",
		Values: []float64{2}}, {Name: results.Cgo, Label: "cgo", Values: []float64{math.NaN()}}}}
	rects, err := elements(draw(c), "rect")
	if err != nil || len(rects) != 4 { // page, two colors of the legend, one bar
		t.Errorf("%v, %v", rects, err)
	}
}

// A line leads from the end of a bar to its tail, and the label names both.
func TestTail(t *testing.T) {
	c := results.Chart{Rows: []string{"x", "y"}, LogX: true, Bars: []results.Bars{{Name: results.CM, Label: "cm",
		Values: []float64{20, 30}, Tails: []float64{5000, math.NaN()}}}}
	svg := string(draw(c))
	if n := strings.Count(svg, `<line class="spread d"`); n != 2 || !strings.Contains(svg, "20.0, p99 5,000") ||
		!strings.Contains(svg, ">30.0<") || !strings.Contains(style, ".spread.d {") {
		t.Errorf("%d lines in\n%s", n, svg)
	}
	costs := results.Chart{Costs: true, Rows: []string{"a", "b", "c"}, Bars: []results.Bars{{
		Values: []float64{0.5, 1.5, 2}, Tails: []float64{3, 18, 2.001}}}}
	svg = string(draw(costs))
	if n := strings.Count(svg, `<line class="spread b"`); n != 4 || !strings.Contains(svg, ">highest 3.00<") ||
		!strings.Contains(svg, ">1.50, highest 18.00<") || !strings.Contains(svg, ">2.00<") {
		t.Errorf("%d lines in\n%s", n, svg)
	}
}

func TestMistakes(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{nil, {"figures.json"}, {"figures.txt", "page.md"}, {"a.json", "b.json"},
		{filepath.Join(dir, "none.json"), filepath.Join(dir, "page.md")}} {
		if err := run(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}
