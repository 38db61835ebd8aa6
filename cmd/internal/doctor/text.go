package doctor

import (
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/goverbs/goverbs/cmd/internal/doctor/check"
)

// text writes the report for people. Facts and notes are left out unless verbose is set, but a healthy machine's
// ports and addresses are listed.
func (r *report) text(w io.Writer, verbose bool) error {
	var b bytes.Buffer
	notes := 0
	for _, f := range r.Findings {
		if f.Severity == check.Note && !verbose {
			notes++
			continue
		}
		if f.Severity == check.OK && !verbose && !shown[f.ID] {
			continue
		}
		fmt.Fprintf(&b, "%-7s  %s\n", strings.ToUpper(f.Severity.String()), f.Seen)
		if f.Severity > check.OK {
			fmt.Fprintf(&b, "%-7s  why: %s\n%-7s  fix: %s\n", "", f.Why, "", f.Fix)
		}
	}
	if r.Figures != nil {
		fmt.Fprintf(&b, "%v\n", r.Figures)
	}
	verdict := "RDMA works."
	if !r.Healthy {
		verdict = "RDMA does not work as it should: see the errors above."
	}
	if notes > 0 {
		verdict += fmt.Sprintf(" Notes about speed: %d (-v prints them).", notes)
	}
	fmt.Fprintln(&b, verdict)
	_, err := w.Write(b.Bytes())
	return err
}

// shown are the facts that are always printed.
var shown = map[string]bool{"port": true, "gid": true, "address": true, "use": true, "peer": true, "send": true,
	"read": true, "write": true, "atomic": true, "ud": true}
