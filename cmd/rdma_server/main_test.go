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
	for _, want := range []string{"-s <server_address>", "0.0.0.0", "-p <port_number>", "7471"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct{ args, want, out string }{
		{"-x", "unknown option -x", ""},
		{"-s", "option -s needs an argument: <server_address>", ""},
		{"host", `unexpected argument "host": give the address with -s`, ""},
		{"-p nosuchservice", "nosuchservice", "rdma_server: start\nrdma_server: end -1\n"},
	} {
		var b strings.Builder
		err := run(t.Context(), strings.Fields(c.args), &b)
		if err == nil || !strings.Contains(err.Error(), c.want) || b.String() != c.out {
			t.Errorf("%q: error %v, want %q; output %q, want %q", c.args, err, c.want, b.String(), c.out)
		}
	}
}
