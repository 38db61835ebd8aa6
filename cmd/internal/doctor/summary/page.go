package summary

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// maxSide limits the rows and the columns of the heat map.
const maxSide = 200

// A heatMap is a table of pairs: a row for each machine, and a column for each peer.
type heatMap struct {
	Peers []string
	Rows  []row
	Left  int // pairs that have no cell, because there are too many rows or columns
}

type row struct {
	Node  string
	Cells []cell
}

// A cell is a pair. Its class names its color: "fault", "heat0" for the slowest WRITEs to "heat9" for the fastest, or
// "" for a pair that was not tried.
type cell struct{ Class, Text, Title string }

// HTML writes the summary as a page that needs no other file.
func (s *Summary) HTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Summary
		Heat *heatMap
	}{s, s.heatMap()})
}

// heatMap returns the heat map, or nil if no pair was tried.
func (s *Summary) heatMap() *heatMap {
	if len(s.Pairs) == 0 {
		return nil
	}
	h := &heatMap{}
	fastest := 0.0
	for _, p := range s.Pairs {
		h.Peers = append(h.Peers, p.Peer)
		if p.Figures != nil {
			fastest = max(fastest, p.Figures.MBPerSec)
		}
	}
	slices.Sort(h.Peers)
	h.Peers = slices.Compact(h.Peers)
	h.Peers = h.Peers[:min(len(h.Peers), maxSide)]
	h.Left = len(s.Pairs)
	for _, n := range s.Nodes {
		if len(n.pairs) == 0 || len(h.Rows) == maxSide {
			continue
		}
		r := row{Node: n.Name}
		for _, peer := range h.Peers {
			p := n.pairs[peer]
			if p != nil {
				h.Left--
			}
			r.Cells = append(r.Cells, p.cell(fastest))
		}
		h.Rows = append(h.Rows, r)
	}
	return h
}

// cell returns the cell of a pair, or of one that was not tried if p is nil.
func (p *Pair) cell(fastest float64) cell {
	switch {
	case p == nil:
		return cell{}
	case p.Figures == nil:
		return cell{"fault", "✗", p.String() + ": " + p.Fault}
	}
	heat := 0
	if fastest > 0 {
		heat = min(max(int(10*p.Figures.MBPerSec/fastest), 0), 9)
	}
	return cell{fmt.Sprintf("heat%d", heat), fmt.Sprintf("%.0f", p.Figures.MBPerSec), fmt.Sprintf("%v: %v", p, p.Figures)}
}
