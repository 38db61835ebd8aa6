package interop

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// streamHeader is the first line of the output of rstream and riostream.
const streamHeader = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer\n"

// streamRow has the settings of a test, in columns that are aligned at the left, and its figures.
var streamRow = regexp.MustCompile(`^(.{42})( *\d+\.\d\d)s( *(?:\d+\.\d\d|inf|-?nan))( *(?:\d+\.\d\d|inf|-?nan))\n$`)

// streamWidths are the widths of the columns with figures, which are aligned at the right. A figure may be longer.
var streamWidths = []int{8, 10, 11}

// streamForm returns an output without its figures, and an error if a column has another width.
func streamForm(out string) (string, error) {
	rows, ok := strings.CutPrefix(out, streamHeader)
	if !ok {
		return "", fmt.Errorf("it does not begin with the header %q", streamHeader)
	}
	var b strings.Builder
	for row := range strings.Lines(rows) {
		if strings.HasPrefix(row, "Keepalive: ON") || strings.HasPrefix(row, "  time: ") {
			continue // of the C program with -k
		}
		m := streamRow.FindStringSubmatch(row)
		if m == nil {
			return "", fmt.Errorf("%q is not a row", row)
		}
		for i, width := range streamWidths {
			column := m[2+i]
			if len(column) != max(width, len(strings.TrimLeft(column, " "))) {
				return "", fmt.Errorf("the figure %q is not in a column of %d characters: %q", column, width, row)
			}
		}
		fmt.Fprintln(&b, m[1])
	}
	return b.String(), nil
}

// TestStreamForm checks that rows have the same form if only their figures differ, and that others are refused.
func TestStreamForm(t *testing.T) {
	const format = "%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f\n"
	row := func(format string, seconds, rate, usec float64) string {
		return streamHeader + fmt.Sprintf(format, "custom", "64", "1k", "10", "1.2m", seconds, rate, usec)
	}
	want := fmt.Sprintf("%-10s%-8s%-8s%-8s%-8s\n", "custom", "64", "1k", "10", "1.2m")
	for _, out := range []string{row(format, 0, 0, 0), row(format, 1, 10.5, 123.25),
		row(format, 123456, 12345678, 123456789)} {
		if got, err := streamForm(out); err != nil || got != want {
			t.Errorf("%q: %q, %v", out, got, err)
		}
	}
	for _, out := range []string{"", streamHeader + "custom\n",
		row(strings.Replace(format, "%8.2f", "%9.2f", 1), 1, 2, 3),
		row(strings.Replace(format, "%11.2f", "%10.2f", 1), 1, 2, 3),
		row(strings.Replace(format, "%10.2f", "%-10.2f", 1), 1, 2, 3)} {
		if _, err := streamForm(out); err == nil {
			t.Errorf("%q is accepted", out)
		}
	}
}
