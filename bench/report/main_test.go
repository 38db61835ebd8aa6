package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/results"
)

// Report writes the page and the charts that the page shows.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	r := &results.Run{Places: []results.Place{{Name: "rxe", Description: "soft-RoCE"},
		{Name: "instructions", Description: "counted"}}}
	for _, size := range []int{2, 64, 4096} {
		for _, who := range []string{results.Go, results.C} {
			for round := range 3 {
				r.Add(results.Series{Place: "rxe", Test: "send_lat", Figure: "typical", At: size, Unit: "us"}, who,
					float64(size+round))
			}
		}
	}
	for _, who := range []string{results.Go, results.C, results.Cgo} {
		r.Add(results.Series{Place: "instructions", Test: "requests", Figure: "write", At: 1}, who, 200)
	}
	r.Distributions = []results.Distribution{{Place: "rxe", Test: "send_lat", Who: results.Go, At: 64, Unit: "us",
		Quantiles: []float64{1, 2, 9}}}
	file := filepath.Join(dir, "run.json")
	if err := r.Write(file); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{file}); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "run.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, chart := range []string{"typical-rxe-send_lat.svg", "distribution-rxe-send_lat.svg", "cost-instructions.svg"} {
		drawn, err := os.ReadFile(filepath.Join(dir, "charts", chart))
		if err != nil || !strings.Contains(string(drawn), "</svg>") {
			t.Errorf("%s: %v, %.100q", chart, err, drawn)
		}
		if !strings.Contains(string(page), "(charts/"+chart+")") {
			t.Errorf("%s is not on the page", chart)
		}
	}
}

func TestMistakes(t *testing.T) {
	for _, args := range [][]string{nil, {"figures.txt"}, {"a.json", "b.json"},
		{filepath.Join(t.TempDir(), "none.json")}} {
		if err := run(args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

func TestTicks(t *testing.T) {
	var labels []string
	for _, tick := range (decades{}).Ticks(0.9, 60) {
		labels = append(labels, tick.Label)
	}
	if got := strings.Join(labels, " "); got != "1 2 5 10 20 50" {
		t.Error(got)
	}
}
