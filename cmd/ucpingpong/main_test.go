package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/internal/getopt"
)

func TestOptions(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-h"}, &out); err != nil || !strings.Contains(out.String(), "(default 4096)") {
		t.Errorf("%v\n%s", err, out.String())
	}
	if err := run(t.Context(), []string{"-N"}, &out); err == nil || !strings.Contains(err.Error(), "unknown option -N") {
		t.Errorf("error %v", err)
	}
	e := &end{opt: pingpong.Defaults("ucpingpong", 4096)}
	if _, err := getopt.Parse([]string{"-m512", "-c"}, e.table()); err != nil || e.opt.MTU.Bytes() != 512 || !e.opt.Check {
		t.Errorf("-m512 -c: %+v, error %v", e.opt, err)
	}
}
