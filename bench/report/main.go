// Report writes the page, its appendix and the charts for the figures that testbed/bench has
// measured. The charts are in the directory charts beside the page, and the appendix, a page of the
// same name, is in the directory evidence:
//
//	go run ./bench/report bench/figures/go-and-c.json docs/go-and-c.md
package main

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/goverbs/goverbs/bench/results"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 || filepath.Ext(args[0]) != ".json" || filepath.Ext(args[1]) != ".md" {
		return errors.New("usage: report FIGURES.json PAGE.md")
	}
	r, err := results.Read(args[0])
	if err != nil {
		return err
	}
	dir, name := filepath.Split(args[1])
	appendix := path.Join("evidence", name)
	files := map[string][]byte{name: []byte(r.Page(appendix)), appendix: []byte(r.Appendix("../" + name))}
	for _, c := range r.Charts() {
		files[path.Join("charts", c.File)] = draw(c)
	}
	for name, text := range files {
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// draw returns a chart as SVG.
func draw(c results.Chart) []byte {
	switch {
	case c.Costs:
		return drawCosts(c)
	case len(c.Rows) > 0:
		return drawBars(c)
	}
	return drawLines(c)
}
