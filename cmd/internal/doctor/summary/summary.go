// Package summary makes one page of the documents that doctor -json has printed on many machines.
package summary

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
	"github.com/goverbs/goverbs/cmd/internal/doctor/peer"
)

// maxFile limits the length of a file in bytes.
const maxFile = 16 << 20

// A document is what doctor -json prints.
type document struct {
	check.Origin
	Healthy  *bool           `json:"healthy"`
	Findings []check.Finding `json:"findings"`
	Peer     string          `json:"peer"`
	Figures  *peer.Figures   `json:"figures"`
}

// A Node is a machine that documents are of.
type Node struct {
	Name    string
	Version string         // of doctor
	Kernel  string         // its release
	Worst   check.Severity // of its findings, without those about peers
	pairs   map[string]*Pair
}

// A Pair is what a machine has found out about a peer.
type Pair struct {
	Node, Peer string
	Figures    *peer.Figures // nil if the connection does not work
	Fault      string        // what was seen then
}

// A Problem is all findings with the same ID that are warnings or errors.
type Problem struct {
	check.Finding          // the first of the most severe ones
	Where         []string // the machines that have it, or the pairs
}

// A Summary is what is known about all machines.
type Summary struct {
	Nodes    []*Node    // in the order of their names
	Problems []*Problem // the most severe and the most frequent first
	Pairs    []*Pair    // in the order of machines and peers
}

// Healthy reports whether no machine has an error, and all pairs work.
func (s *Summary) Healthy() bool {
	return len(s.With(check.Error)) == 0 && !slices.ContainsFunc(s.Pairs, func(p *Pair) bool { return p.Figures == nil })
}

// With returns the names of the machines whose worst finding has a severity.
func (s *Summary) With(worst check.Severity) (names []string) {
	for _, n := range s.Nodes {
		if n.Worst == worst {
			names = append(names, n.Name)
		}
	}
	return names
}

// Read reads files. Each has the documents of one machine or of several, one after the other. A file without a document
// is that of a machine, named like the file, where doctor did not run.
func Read(files []string) (*Summary, error) {
	b := builder{nodes: map[string]*Node{}, problems: map[string]*Problem{}}
	for _, file := range files {
		text, err := readFile(file)
		if err != nil {
			return nil, err
		}
		b.add(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), text)
	}
	return b.summary(), nil
}

// readFile reads a file of limited length.
func readFile(name string) (_ []byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is longer than %d MiB: give several smaller files", name, maxFile>>20)
	}
	return text, nil
}

// A builder collects documents.
type builder struct {
	nodes    map[string]*Node
	problems map[string]*Problem // by ID
}

// add adds the documents of a file.
func (b *builder) add(name string, text []byte) {
	d := json.NewDecoder(bytes.NewReader(text))
	for n := 0; ; n++ {
		var doc document
		err := d.Decode(&doc)
		switch {
		case err == io.EOF && n > 0:
			return
		case err == io.EOF:
			err = errors.New("the file is empty")
		case err == nil && doc.Healthy == nil:
			err = errors.New("the file has other contents")
		}
		if err != nil {
			b.addDocument(document{Origin: check.Origin{Host: name}, Findings: []check.Finding{{ID: "no-document",
				Severity: check.Error, Seen: "there is no document of doctor -json: " + err.Error(),
				Why: "doctor did not run there, or did not end", Fix: "doctor -json (on the machine)"}}})
			return
		}
		doc.Host = cmp.Or(doc.Host, name)
		b.addDocument(doc)
	}
}

func (b *builder) addDocument(doc document) {
	doc.clean()
	n := b.nodes[doc.Host]
	if n == nil {
		n = &Node{Name: doc.Host, pairs: map[string]*Pair{}}
		b.nodes[doc.Host] = n
	}
	n.Version, n.Kernel = cmp.Or(doc.Version, n.Version), cmp.Or(doc.Kernel, n.Kernel)
	pair := &Pair{Node: n.Name, Peer: doc.Peer, Figures: doc.Figures}
	for _, f := range doc.Findings {
		if f.Severity < check.Warning {
			continue
		}
		if doc.Peer != "" && peer.Finds(f.ID) {
			b.addProblem(pair.String(), f)
		} else {
			n.Worst = max(n.Worst, f.Severity)
			b.addProblem(n.Name, f)
		}
		if f.Severity == check.Error && pair.Fault == "" {
			pair.Fault = f.Seen
		}
	}
	if doc.Peer != "" {
		n.pairs[doc.Peer] = pair
	}
}

func (b *builder) addProblem(where string, f check.Finding) {
	p := b.problems[f.ID]
	if p == nil {
		p = &Problem{Finding: f}
		b.problems[f.ID] = p
	}
	if f.Severity > p.Severity {
		p.Finding = f
	}
	if !slices.Contains(p.Where, where) {
		p.Where = append(p.Where, where)
	}
}

// clean leaves out what a terminal interprets.
func (doc *document) clean() {
	all := []*string{&doc.Host, &doc.Version, &doc.Kernel, &doc.Peer}
	for i := range doc.Findings {
		f := &doc.Findings[i]
		all = append(all, &f.ID, &f.Device, &f.Seen, &f.Why, &f.Fix)
	}
	for _, s := range all {
		*s = peer.Printable(*s)
	}
}

// summary returns what was collected.
func (b *builder) summary() *Summary {
	s := &Summary{Nodes: slices.Collect(maps.Values(b.nodes)), Problems: slices.Collect(maps.Values(b.problems))}
	slices.SortFunc(s.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	for _, p := range s.Problems {
		slices.Sort(p.Where)
	}
	slices.SortFunc(s.Problems, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(len(b.Where), len(a.Where)), cmp.Compare(a.ID, b.ID))
	})
	for _, n := range s.Nodes {
		for _, peer := range slices.Sorted(maps.Keys(n.pairs)) {
			s.Pairs = append(s.Pairs, n.pairs[peer])
		}
	}
	return s
}
