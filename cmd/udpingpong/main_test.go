package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/uverbs"
)

func TestOptions(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, &out); err != nil || !strings.Contains(out.String(), "(default 1024)") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := run(t.Context(), []string{"-m", "512"}, &out); err == nil ||
		!strings.Contains(err.Error(), "unknown option -m") {
		t.Errorf("a datagram has no path MTU: error %v", err)
	}
}

// TestLocalText compares the text with the output of ibv_ud_pingpong of rdma-core 56.1.
func TestLocalText(t *testing.T) {
	a := pingpong.Address{LID: 0x1a, QPN: 0x11, PSN: 0xfa6d3d, GID: uverbs.GID{10: 0xff, 11: 0xff, 12: 10, 13: 9, 15: 1}}
	const want = "LID 0x001a, QPN 0x000011, PSN 0xfa6d3d: GID ::ffff:10.9.0.1"
	if got := localText(a); got != want {
		t.Errorf("printed as %s, want %s", got, want)
	}
}
