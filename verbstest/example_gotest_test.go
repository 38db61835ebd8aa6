package verbstest_test

import (
	"testing"

	"github.com/goverbs/goverbs/verbstest"
)

// goTest runs a test, and prints what it reports.
func goTest(test func(testing.TB)) { verbstest.GoTest(test) }
