package perftest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	numbers = regexp.MustCompile(`(QPN|PSN|RKey|VAddr) 0x[0-9a-f]+`)
	figures = regexp.MustCompile(`(-?nan|\binf\b|[0-9]+\.[0-9]+)( *)`)
	single  = regexp.MustCompile(`(?m)^([0-9]+, )[0-9.e+]+$`)
	waiting = regexp.MustCompile(`\n?\*+\n\* Waiting for client to connect... \*\n\*+\n`)
	unknown = regexp.MustCompile(`(?m)^(-+\n)?Device not recognized to implement inline feature. Disabling it\n`)
	unsure  = regexp.MustCompile(`(?m)^Correlation coefficient r\^2: .*\n`)
	slowly  = regexp.MustCompile(`\x1b\[31mThe QP failed to accept HW rate limit, providing SW rate limit \x1b\[0m\n`)
	timed   = regexp.MustCompile(`(tps average.*\n [0-9]+ +)[0-9]+( +)`)
	slow    = regexp.MustCompile(`(?m)^( \d+ +)(\d+) {11}(\d+\.\d{6}) {12}(0\.0\d{5}|0\.100000) {12}(\d+\.\d{6})`)
)

// form returns a program's output without the parts that differ from run to run,
// without the C program's warnings about rxe, which it does not know and which does not limit rates, and about its
// clock, which it measures badly on a busy machine, and without the additions of
// stdbuf and terminals.
func form(out string) string {
	out = strings.ReplaceAll(out, "\r\n", "\n")
	out = unknown.ReplaceAllString(out, "")
	out = unsure.ReplaceAllString(out, "")
	out = slowly.ReplaceAllString(out, "")
	out = numbers.ReplaceAllString(out, "$1 n")
	out = single.ReplaceAllString(out, "${1}n")
	out = timed.ReplaceAllString(out, "${1}n$2")
	return figuresGone(slow.ReplaceAllStringFunc(out, fast))
}

// figuresGone replaces figures with "n", which keeps the spaces between columns: those that pad a figure to the width
// of its column are removed. All columns of perftest are left-aligned and at least figureWidth wide. A figure that
// fewer spaces follow is not in a column.
func figuresGone(out string) string {
	const figureWidth = 7
	return figures.ReplaceAllStringFunc(out, func(match string) string {
		figure := strings.TrimRight(match, " ")
		spaces := len(match) - len(figure)
		if padding := max(figureWidth-len(figure), 0); padding <= spaces {
			spaces -= padding
		}
		return "n" + strings.Repeat(" ", spaces)
	})
}

// fast returns a row of --report_gbits below 0.1 Gb/s, which has more digits and other spaces, in the format of rows
// above 0.1 Gb/s. On a busy machine the results of the two programs can differ so much.
func fast(row string) string {
	f := slow.FindStringSubmatch(row)
	value := func(s string) float64 {
		v, err := strconv.ParseFloat(s, 64)
		if err != nil {
			panic(err)
		}
		return v
	}
	return fmt.Sprintf("%s%-10s       %-7.2f            %-7.2f\t\t     %-7.6f",
		f[1], f[2], value(f[3]), value(f[4]), value(f[5]))
}

// TestForm checks that outputs have the same form if only their figures differ, and different forms if a column does.
func TestForm(t *testing.T) {
	const (
		bandwidth = " %-7d    %-10d       %-7.2f            %-7.2f\t\t     %-7.6f\n"
		slow      = " %-7d    %d           %-7.6f            %-7.6f            %-7.6f\n"
		latency   = " %-7d %d          %-7.2f        %-7.2f      %-7.2f  \t       %-7.2f     \t%-7.2f\t\t%-7.2f \t\t" +
			"%-7.2f\n"
	)
	bw := func(format string, peak, avg, rate float64) string {
		return fmt.Sprintf(format, 65536, 100, peak, avg, rate)
	}
	lat := func(x float64) string { return fmt.Sprintf(latency, 2, 20, x, x, x, x, x, x, x) }
	timed := func(n int, x float64) string {
		return fmt.Sprintf(" #bytes        tps average[tps]\n %-7d       %d            %-7.2f        %-7.2f\n", 2, n, x, x)
	}
	for _, c := range []struct {
		name, a, b string
		same       bool
	}{
		{"short and long figures", bw(bandwidth, 1.25, 0.53, 0.001), bw(bandwidth, 12345.67, 1234.5, 12.5), true},
		{"no peak", bw(bandwidth, 0, 3, 1), bw(bandwidth, 123456.75, 3, 1), true},
		{"latencies", lat(0.5), lat(123456.5), true},
		{"duration", timed(9, 1), timed(123456, 100000), true},
		{"below and above 0.1 Gb/s", bw(slow, 0.2, 0.05, 0.000096), bw(bandwidth, 0.2, 0.15, 0.000286), true},
		{"JSON", `"BW_peak": 1.25,` + "\n", `"BW_peak": 12345.67,` + "\n", true},
		{"list of times", "1, 2.5\n2, 3e+06\n", "1, 1234.5\n2, 7\n", true},
		{"another column", bw(bandwidth, 1, 2, 3),
			bw(strings.Replace(bandwidth, "   %-7.2f", "    %-7.2f", 1), 1, 2, 3), false},
		{"a wider column", bw(bandwidth, 1, 2, 3), bw(strings.Replace(bandwidth, "%-7.2f", "%-8.2f", 1), 1, 2, 3), false},
		{"the wrong format above 0.1 Gb/s", bw(slow, 0.2, 0.15, 1), bw(bandwidth, 0.2, 0.15, 1), false},
		{"another format below 0.1 Gb/s", bw(strings.Replace(slow, "  %-7.6f", " %-7.6f", 1), 0.2, 0.05, 1),
			bw(bandwidth, 0.2, 0.15, 1), false},
		{"another first column below 0.1 Gb/s", bw(strings.Replace(slow, "%-7d", "%-6d", 1), 0.2, 0.05, 1),
			bw(bandwidth, 0.2, 0.15, 1), false},
		{"another size", bw(bandwidth, 1, 2, 3), strings.Replace(bw(bandwidth, 1, 2, 3), "65536", "32768", 1), false},
	} {
		if a, b := form(c.a), form(c.b); (a == b) != c.same {
			t.Errorf("%s: want the same form: %v\n%q\n%q", c.name, c.same, a, b)
		}
	}
	// Carriage returns and warnings of the C program are not part of the form.
	const noisy = "---\nDevice not recognized to implement inline feature. Disabling it\n QPN 0x12\r\n"
	if got := form(noisy); got != " QPN n\n" {
		t.Errorf("got %q", got)
	}
}
