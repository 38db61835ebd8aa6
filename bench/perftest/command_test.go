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
