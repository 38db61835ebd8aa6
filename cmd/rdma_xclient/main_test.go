package main

import (
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	var b strings.Builder
	if err := run(t.Context(), []string{"-h"}, &b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"-p <port_number>", "7471", "-c <communication_type>"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ args, want, out string }{
		{"-c u", `unknown service "u": use r or x`, ""},
		{"host", `unexpected argument "host": give the server's address with -s`, ""},
		{"-p nosuchservice", "nosuchservice", "rdma_xclient: start\nrdma_xclient: end -1\n"},
	} {
		var b strings.Builder
		err := run(t.Context(), strings.Fields(c.args), &b)
		if err == nil || !strings.Contains(err.Error(), c.want) || b.String() != c.out {
			t.Errorf("%q: error %v, want %q; output %q, want %q", c.args, err, c.want, b.String(), c.out)
		}
	}
}
