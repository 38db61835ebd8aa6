package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/bench/perftest"
)

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		args, rest string
		want       func()
	}{
		{"/bin/rping -s", "/bin/rping -s", programs["rping"]},
		{"goverbs rping -s", "rping -s", programs["rping"]},
		{"./goverbs doctor", "doctor", programs["doctor"]},
		{"ib_send_lat -h", "ib_send_lat -h", perftest.Main},
		{"goverbs write_bw", "write_bw", perftest.Main},
		{"goverbs perftest send_lat", "perftest send_lat", perftest.Main},
		{"goverbs", "", nil},
		{"goverbs rpin", "", nil},
		{"/", "", nil},
	} {
		got, rest := choose(strings.Fields(c.args))
		if reflect.ValueOf(got).Pointer() != reflect.ValueOf(c.want).Pointer() ||
			!slices.Equal(rest, strings.Fields(c.rest)) {
			t.Errorf("%q: %v", c.args, rest)
		}
	}
	if got, _ := choose(nil); got != nil {
		t.Error("a program without a name")
	}
	var b strings.Builder
	if usage(&b); !strings.Contains(b.String(), "the programs: asyncwatch devinfo doctor perftest rnc rping rproxy; ") {
		t.Error(b.String())
	}
}
