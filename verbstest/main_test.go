package verbstest_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/goverbs/goverbs/uverbs"
	"github.com/goverbs/goverbs/verbstest"
)

// TestMainReports checks the exit code and the report of Main: an example finds a device, and must close what it opens.
func TestMainReports(t *testing.T) {
	for name, tc := range map[string]struct {
		code   int // of the tests and examples
		leaves bool
		want   int
		report string
	}{
		"passes": {0, false, 0, ""},
		"fails":  {2, false, 2, ""},
		"leaves": {0, true, 1, "left in the kernel: PD "},
		"both":   {2, true, 2, "left in the kernel: PD "},
	} {
		t.Run(name, func(t *testing.T) {
			var report strings.Builder
			code := verbstest.OnMachine(func() int {
				c := must(uverbs.Open(""))(t)
				pd := must(c.AllocPD())(t)
				closeAll := func() { check(t, errors.Join(pd.Close(), c.Close())) }
				if tc.leaves {
					t.Cleanup(closeAll)
				} else {
					closeAll()
				}
				return tc.code
			}, &report)
			if got := report.String(); code != tc.want || !strings.Contains(got, tc.report) || (tc.report == "") != (got == "") {
				t.Errorf("code %d, report %q", code, got)
			}
		})
	}
}
