package perftest

import (
	"bytes"
	"io"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	for _, c := range []struct{ name, args, out, err string }{
		{"goverbs-perftest", "", "", "usage: goverbs-perftest TEST [options] [host]; the tests: [send_lat send_bw"},
		{"perftest", "-h", "Usage:\n  perftest TEST [options] ", ""},
		{"perftest", "--help", "Usage:\n  perftest TEST [options] ", ""},
		{"goverbs-perftest", "-x", "", `there is no test "-x": choose from [send_lat`},
		{"goverbs-perftest", "send_la", "", `there is no test "send_la": choose from [send_lat`},
		{"goverbs-perftest", "ib_send_lat -V", "Version: 6.24\ngoverbs ", ""},
		{"goverbs-perftest", "-version", "Version: 6.24\ngoverbs ", ""},
		{"ib_read_bw", "--version", "Version: 6.24\n", ""},
		{"write_lat", "-h", "Usage:\n  write_lat ", ""},
		{"write_lat", "-n 1", "", "write_lat: option -n, --iters:"},
		{"goverbs-perftest", "send_lat -d none", "", "send_lat: "},
	} {
		var out bytes.Buffer
		err := command(t.Context(), c.name, strings.Fields(c.args), &out, io.Discard)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			!strings.HasPrefix(out.String(), c.out) {
			t.Errorf("%s %s: %q, %v", c.name, c.args, out.String(), err)
		}
	}
}

// The help names every test, and how to list the options of one.
func TestHelp(t *testing.T) {
	text := help("perftest")
	for _, test := range Tests {
		if !strings.Contains(text, "\n  "+test.String()+" ") {
			t.Errorf("no line for %v:\n%s", test, text)
		}
	}
	if !strings.Contains(text, "\n  perftest TEST -h ") {
		t.Error(text)
	}
}
