// Report writes the page and the charts for the figures that testbed/bench has
// measured. The charts are in the directory charts beside the page:
//
//	go run ./bench/report bench/figures/go-and-c.json docs/go-and-c.md
package main

import (
	"errors"
	"fmt"
	"os"
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
	if err := os.WriteFile(args[1], []byte(r.Page()), 0o644); err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(args[1]), "charts")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, c := range r.Charts() {
		if err := os.WriteFile(filepath.Join(dir, c.File), draw(c), 0o644); err != nil {
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
