package verbstest_test

import (
	"testing"

	"github.com/goverbs/goverbs/internal/sim/exampletest"
)

// goTest runs a test, and prints what it reports.
func goTest(test func(testing.TB)) { exampletest.Test(test) }
