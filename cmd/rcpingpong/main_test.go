package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/internal/getopt"
)

func TestOptions(t *testing.T) {
	for arg, want := range map[string]string{
		"-o": "this program does not support on-demand paging",
		"-O": "implicit on-demand paging",
		"-P": "prefetching",
		"-t": "completion timestamps",
		"-j": "device memory",
		"-U": "unknown option -U",
	} {
		var out bytes.Buffer
		if err := run(t.Context(), []string{arg}, &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", arg, err, want)
		}
	}
	e := &end{opt: pingpong.Defaults("rcpingpong", 4096)}
	if _, err := getopt.Parse([]string{"-N", "-m512"}, e.table()); err != nil || !e.newSend || e.opt.MTU.Bytes() != 512 {
		t.Errorf("-N, -m512: %+v, error %v", e, err)
	}
}
