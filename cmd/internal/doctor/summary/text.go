package summary

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
)

// maxNames is how many names a line of the text has.
const maxNames = 10

// Text writes the summary for a terminal.
func (s *Summary) Text(w io.Writer) error {
	var b bytes.Buffer
	fmt.Fprintln(&b, s.Verdict())
	for _, severity := range []check.Severity{check.Error, check.Warning} {
		if nodes := s.With(severity); len(nodes) > 0 {
			fmt.Fprintf(&b, "%-7s  %s\n", strings.ToUpper(severity.String()), names(nodes))
		}
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "\n%-7s  %s: %s\n", strings.ToUpper(p.Severity.String()), p.ID, names(p.Where))
		fmt.Fprintf(&b, "%-7s  %s\n%-7s  why: %s\n%-7s  fix: %s\n", "", p.Seen, "", p.Why, "", p.Fix)
	}
	if len(s.Pairs) > 0 {
		fmt.Fprintf(&b, "\n%s", s.pairText())
	}
	_, err := w.Write(b.Bytes())
	return err
}

// Verdict says how many machines and pairs work.
func (s *Summary) Verdict() string {
	text := fmt.Sprintf("RDMA works on %d of %d machines", len(s.Nodes)-len(s.With(check.Error)), len(s.Nodes))
	if n := len(s.With(check.Warning)); n > 0 {
		text += fmt.Sprintf(" (%d with warnings)", n)
	}
	if n := len(s.Pairs); n > 0 {
		text += fmt.Sprintf(", and between %d of %d pairs", n-len(s.failing()), n)
	}
	return text + "."
}

// names lists machines, and how many more there are.
func names(all []string) string {
	if len(all) <= maxNames {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:maxNames], ", "), len(all)-maxNames)
}

// pairText says which pairs fail, and which are the slowest.
func (s *Summary) pairText() string {
	text := ""
	if failing := s.failing(); len(failing) > 0 {
		text = "Failing pairs: " + names(failing) + ".\n"
	}
	works := slices.DeleteFunc(slices.Clone(s.Pairs), func(p *Pair) bool { return p.Figures == nil })
	if len(works) == 0 {
		return text
	}
	slices.SortFunc(works, func(a, b *Pair) int { return cmp.Compare(b.Figures.Typical, a.Figures.Typical) })
	text += fmt.Sprintf("Typical round trip: median %v, longest %v (%v).\n", works[len(works)/2].Figures.Typical,
		works[0].Figures.Typical, works[0])
	slices.SortFunc(works, func(a, b *Pair) int { return cmp.Compare(a.Figures.MBPerSec, b.Figures.MBPerSec) })
	return text + fmt.Sprintf("WRITEs: median %.0f MB/s, slowest %.0f MB/s (%v).\n", works[len(works)/2].Figures.MBPerSec,
		works[0].Figures.MBPerSec, works[0])
}

// failing lists the pairs that do not work.
func (s *Summary) failing() (pairs []string) {
	for _, p := range s.Pairs {
		if p.Figures == nil {
			pairs = append(pairs, p.String())
		}
	}
	return pairs
}

func (p *Pair) String() string { return p.Node + " to " + p.Peer }
