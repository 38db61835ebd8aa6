package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/cmd/internal/pingpong"
	"github.com/goverbs/goverbs/internal/getopt"
)

func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-q 0":   `"0" is not a number from 1 to 255`,
		"-q 256": `"256" is not a number from 1 to 255`,
		"-o":     "this program does not support on-demand paging",
	} {
		var out bytes.Buffer
		if err := run(t.Context(), strings.Fields(args), &out); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", args, err, want)
		}
	}
	e := &end{opt: pingpong.Defaults("srqpingpong", 4096), numQP: 16}
	if _, err := getopt.Parse(strings.Fields("-q 20 -r 10 --mtu 256"), e.table()); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Open(nil, nil); err == nil ||
		!strings.Contains(err.Error(), "10 receives are too few for 20 queue pairs: use -r 20") {
		t.Errorf("error %v", err)
	}
}
